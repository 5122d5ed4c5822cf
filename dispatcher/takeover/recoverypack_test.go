package takeover

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"testing"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/internal/seeds"
	"weir/dispatcher/recorder"
)

// Mistakes about packs.
const (
	callsBrokenPack plantedMistake = "what is left of a pack is called again under its key"
	callsMatesAlone plantedMistake = "a job of a pack that may have been processed is called in another one"
	forgetsPack     plantedMistake = "recovery does not read in which pack a job was called"
)

var packMistakes = []plantedMistake{callsBrokenPack, callsMatesAlone, forgetsPack}

// packModel is the additional state of a recoveryModel with packs. Each call has several jobs; if packModel is nil,
// each has one.
type packModel struct {
	ids      int
	of       map[string][]uint64           // the jobs of each pack, by the key of its calls
	outcomes map[string][]httpcall.Outcome // how the api has processed a pack
}

// newPackModel returns a model in which calls have several jobs.
func newPackModel(seed uint64, bug plantedMistake) *recoveryModel {
	m := newRecoveryModel(seed, bug)
	m.operates, m.packs = false, &packModel{of: map[string][]uint64{}, outcomes: map[string][]httpcall.Outcome{}}
	return m
}

// identity returns the identity of the key of the job's present call.
func (w *jobsWay) identity() string { return w.o.m.api.KeyIdentityIn(packID(w.in)) }

func packID(p *queue.Pack) string {
	if p == nil {
		return ""
	}
	return p.ID
}

// bind ties the job to a pack if the api may have processed it.
func (w *jobsWay) bind(known ...*queue.Pack) {
	if w.bond = nil; w.doubt.Keyed() != "" {
		w.bond = cmp.Or(known...)
	}
}

// pool lets the job rest until it goes in a pack.
func (w *jobsWay) pool() { w.o.rests = append(w.o.rests, w) }

// start continues a job in a coroutine of its own.
func (w *jobsWay) start(do func()) {
	w.over, w.waiting = false, false
	w.next, w.stop = iter.Pull(func(yield func(*modelWrite) bool) {
		w.yield = yield
		do()
	})
	w.o.ways = append(w.o.ways, w)
}

// gather makes a pack of jobs that rest, and reports whether anything happened.
func (m *recoveryModel) gather(o *modelOwner) bool {
	if !o.right || len(o.rests) == 0 {
		return false
	}
	slices.SortFunc(o.rests, func(a, b *jobsWay) int { return cmp.Compare(a.mj.seq, b.mj.seq) })
	for _, w := range o.rests {
		if w.bond != nil && m.bug != callsMatesAlone {
			if m.repeat(o, w) {
				return true
			}
			continue
		}
		var jobs []*jobsWay
		for _, other := range o.rests {
			if (other.bond == nil || m.bug == callsMatesAlone) && (other == w || m.one(2)) {
				jobs = append(jobs, other)
			}
		}
		m.packs.ids++
		m.callPack(o, jobs, fmt.Sprint("pack-", m.packs.ids))
		return true
	}
	return false
}

// repeat calls a job's pack again, or parks the job if other jobs of its pack have ended. It does neither while
// outcomes of other jobs are being stored.
func (m *recoveryModel) repeat(o *modelOwner, w *jobsWay) bool {
	var mates []*jobsWay
	for _, other := range o.rests {
		if packID(other.bond) == w.bond.ID {
			mates = append(mates, other)
		}
	}
	if len(mates) == w.bond.Of || m.bug == callsBrokenPack {
		slices.SortFunc(mates, func(a, b *jobsWay) int { return cmp.Compare(a.bond.Place, b.bond.Place) })
		m.callPack(o, mates, w.bond.ID)
		return true
	}
	for _, way := range o.ways {
		if !way.over && way.mj != nil && (packID(way.bond) == w.bond.ID || packID(way.in) == w.bond.ID) {
			return false
		}
	}
	o.rests = slices.DeleteFunc(o.rests, func(r *jobsWay) bool { return r == w })
	w.start(func() {
		if !w.persist(func() { m.bar(w.mj) }) {
			return
		}
		if w.mj.result {
			w.finish()
			return
		}
		w.endWithout(deadletter.Unknown)
	})
	return true
}

// callPack makes jobs ready together, and calls them.
func (m *recoveryModel) callPack(o *modelOwner, jobs []*jobsWay, id string) {
	o.rests = slices.DeleteFunc(o.rests, func(r *jobsWay) bool { return slices.Contains(jobs, r) })
	lead := &jobsWay{o: o}
	lead.start(func() { m.leadPack(lead, jobs, id) })
}

func (m *recoveryModel) leadPack(lead *jobsWay, jobs []*jobsWay, id string) {
	o := lead.o
	if w := jobs[m.rnd.IntN(len(jobs))]; m.one(12) { // its deadline has passed
		for _, other := range jobs {
			if other != w {
				other.pool()
			}
		}
		w.start(func() { w.endWithout(deadletter.Expired) })
		return
	}
	write := &modelWrite{ways: jobs}
	for i, w := range jobs {
		w.in = &queue.Pack{ID: id, Place: i, Of: len(jobs)}
		write.intents = append(write.intents, w.nextIntent())
	}
	write.intent = &write.intents[0]
	if !lead.yield(write) || lead.refused {
		return
	}
	if m.one(8) || !o.right { // it was made ready too early
		for _, w := range jobs {
			w.dropIntents()
			w.in = nil
			w.pool()
		}
		return
	}
	for _, w := range jobs {
		w.calls++
		w.settle(w.adopted)
		m.notes[w.entry].state = recorder.Begun
	}
	var outs []httpcall.Outcome
	if !lead.yield(&modelWrite{arrive: func() { outs = m.processPack(jobs, id) }}) {
		return
	}
	for i, w := range jobs {
		m.notes[w.entry].state, m.notes[w.entry].out = recorder.Answered, outs[i]
	}
	for i, w := range jobs {
		w.start(func() {
			if w.conclude(outs[i]) {
				w.pool()
			}
		})
	}
}

// processPack does what the api does at a pack's call. The api knows the key of a pack that it has processed.
func (m *recoveryModel) processPack(jobs []*jobsWay, id string) []httpcall.Outcome {
	var seqs []uint64
	for _, w := range jobs {
		seqs = append(seqs, w.mj.seq)
		w.mj.called[w.calls]++
	}
	keyed := m.api.Idempotency != nil
	if was, called := m.packs.of[id]; called && !slices.Equal(was, seqs) {
		m.fail("the jobs %d are called under the key of the jobs %d", seqs, was)
	}
	m.packs.of[id] = seqs
	all := func(out httpcall.Outcome) (outs []httpcall.Outcome) {
		for range jobs {
			outs = append(outs, out)
		}
		return outs
	}
	if known := m.packs.outcomes[id]; keyed && known != nil && !m.one(6) {
		return known
	}
	process := func() []httpcall.Outcome {
		if keyed && m.packs.outcomes[id] != nil {
			return m.packs.outcomes[id]
		}
		outs := all(httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes})
		for i, w := range jobs {
			switch {
			case m.one(8):
				outs[i] = httpcall.Outcome{Verdict: httpcall.Again, Billed: deadletter.NotBilled}
			case m.one(8):
				outs[i] = httpcall.Outcome{Verdict: httpcall.Dead, Billed: deadletter.NotBilled, Reason: deadletter.Rejected}
			default:
				w.mj.processed++
			}
		}
		m.packs.outcomes[id] = outs
		return outs
	}
	switch m.rnd.IntN(6) {
	case 0:
		return all(httpcall.Outcome{Verdict: httpcall.Dead, Billed: deadletter.NotBilled, Reason: deadletter.Rejected})
	case 1:
		return all(httpcall.Outcome{Verdict: httpcall.Pushback, Billed: deadletter.NotBilled})
	case 2:
		if m.one(2) {
			process()
		}
		if keyed {
			return all(httpcall.Outcome{Verdict: httpcall.Again, Billed: deadletter.BilledUnknown})
		}
		return all(httpcall.Outcome{Verdict: httpcall.Dead, Billed: deadletter.BilledUnknown, Reason: deadletter.Unknown})
	}
	return process()
}

// TestSimulationOfRecoveryOfPacks is TestSimulationOfRecovery with calls of several jobs: each job ends once, none is
// processed twice, and a pack's key is only used for the same jobs in the same order.
func TestSimulationOfRecoveryOfPacks(t *testing.T) {
	repeated := 0
	for seed := range seeds.Of(100_000) {
		m := newPackModel(seed, "")
		m.run()
		m.check()
		if len(m.wrong) > 0 {
			t.Fatalf("seed %d: %v", seed, m.wrong)
		}
		for _, j := range m.jobs {
			if j.repeated && j.processed == 1 {
				repeated++
			}
		}
	}
	if repeated == 0 {
		t.Error("no pack was called again after a death")
	}
}

// TestSimulationOfRecoveryFindsMistakesOfPacks is TestSimulationOfRecoveryFindsMistakes for packs.
func TestSimulationOfRecoveryFindsMistakesOfPacks(t *testing.T) {
	const most = 100_000
	for _, bug := range packMistakes {
		tried, found := 0, false
		for seed := range seeds.Of(most) {
			m := newPackModel(seed, bug)
			m.run()
			m.check()
			tried++
			if found = len(m.wrong) > 0; found {
				t.Logf("%s: seed %d, %s", bug, seed, m.wrong[0])
				break
			}
		}
		if !found && tried >= most {
			t.Errorf("not found: %s", bug)
		}
	}
}
