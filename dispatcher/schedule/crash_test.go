package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// crashes holds what a simulation in which the process dies also remembers: what would be in NATS.
type crashes struct {
	once   bool                     // the api is not idempotent now: what was in the air, without a key or before, is parked
	ledger map[string]bucket.Micros // the pace of every key, by the store's clock
	saved  bucket.Snapshot          // the last checkpoint
	found  map[uint64]remains
	parked map[uint64]bool
	died   int
}

// remains is what a crash leaves of a job that was called or about to be.
type remains struct {
	seq       uint64
	calls     int
	notBefore bucket.Micros
	inAir     bool // its last call has an intent and no record
	keyless   bool // that call carried no key
	cancelled bool
}

// mortal makes the process of a simulation die a few times.
func (m *simulation) mortal() *simulation {
	m.crashes = crashes{
		ledger: map[string]bucket.Micros{}, found: map[uint64]remains{}, parked: map[uint64]bool{}, once: m.rnd.IntN(2) == 0,
	}
	m.policy.Rules.Lease = 500 * time.Millisecond
	m.openStore()
	if m.s.store.clock == OwnClock {
		m.s.store.tatOf = func(key string) bucket.Micros {
			tat, _ := m.store.TAT(key)
			return max(tat, m.crashes.ledger[key])
		}
		m.store.Restore(bucket.Snapshot{})
		m.keepCheckpoints()
	}
	for range 1 + m.rnd.IntN(5) {
		m.outside(m.upTo(900*time.Millisecond), m.crash)
	}
	for range 20 {
		m.outside(m.upTo(time.Second), m.twice)
	}
	return m
}

// keepCheckpoints does what the dispatcher does for limits that are counted in it.
func (m *simulation) keepCheckpoints() {
	s := m.store.Checkpoint(300 * time.Millisecond)
	store := m.store
	m.after(m.upTo(10*time.Millisecond), func() {
		m.crashes.saved = s
		store.Saved(s)
	})
	m.after(40*time.Millisecond, m.keepCheckpoints)
}

// twice repeats a report to the schedule, or makes one without effect.
func (m *simulation) twice() {
	switch m.rnd.IntN(6) {
	case 0:
		m.s.agenda.touchAll()
	case 1:
		m.s.PermitFreed()
	case 2:
		m.s.Holds.Hold(nil, m.s.Holds.held, "again")
	case 3:
		m.s.Holds.Resume("nobody", m.now)
	case 4:
		for _, key := range slices.Sorted(maps.Keys(m.s.Holds.paused.keys)) {
			m.s.Holds.Pause(key, m.s.Holds.paused.keys[key])
		}
	case 5:
		m.s.Holds.TryNow(m.now)
	}
	m.step()
}

// keepRecord does at a call's end what the ledger does.
func (m *simulation) keepRecord(j *Job) {
	if m.crashes.ledger != nil {
		key := j.Queue.Key
		m.crashes.ledger[key] = max(m.crashes.ledger[key], j.Grant.TAT, m.s.At(m.now).Floor(j.Queue))
	}
}

// mayLeave checks that the schedule calls no job again whose outcome is unknown.
func (m *simulation) mayLeave(j *Job) {
	if m.crashes.parked[j.Seq] {
		m.t.Fatalf("job %d was called after it was parked as unknown", j.Seq)
	}
}

// crash ends the process and starts another, which finds in the stream what was not deleted.
func (m *simulation) crash() {
	m.life++
	m.crashes.died++
	old := m.s
	m.calling, m.inFlight = map[string]int{}, 0
	if old.store.clock == OwnClock {
		m.openStore()
		m.store.Restore(m.crashes.saved)
		m.keepCheckpoints()
	}
	m.s = New(old.policy, old.Pipe.pace, old.store.tatOf)
	m.s.store.clock = old.store.clock
	m.probing, m.grudges = nil, map[*KeyQueue]*grudge{}
	for key, p := range old.Holds.paused.keys {
		m.s.Holds.Pause(key, p)
	}
	if p := old.Holds.paused.api; p != nil {
		m.s.Holds.Pause("", *p)
	}
	m.part = &Partition{Reading: true}
	for _, key := range slices.Sorted(maps.Keys(old.byKey)) {
		m.reread(old.byKey[key])
	}
	if m.rnd.IntN(3) == 0 {
		m.crashes.once = !m.crashes.once // the next one is told so by its file
	}
	m.after(m.upTo(30*time.Millisecond), m.reopen)
}

// reread pushes a queue's jobs again, and reports what else is known of them.
func (m *simulation) reread(q *KeyQueue) {
	var seqs []uint64
	for _, j := range q.Jobs {
		seqs = append(seqs, j.Seq)
		r := remains{
			seq: j.Seq, calls: j.Calls, inAir: j.Phase == calling || j.Phase == settling || m.crashes.parked[j.Seq],
			keyless: m.crashes.once || m.crashes.parked[j.Seq], cancelled: m.cancelled[j.Seq],
		}
		if j.Phase == resting && !j.limited {
			r.notBefore = j.NotBefore
		}
		if r.calls > 0 || r.cancelled {
			m.crashes.found[j.Seq] = r
		}
	}
	seqs = append(seqs, q.waitingSeqs()...)
	slices.SortFunc(seqs, cmp.Compare)
	for _, seq := range seqs {
		m.push(q.Key, seq)
	}
}

// reopen does what the dispatcher does when a partition has been read.
func (m *simulation) reopen() {
	for _, key := range slices.Sorted(maps.Keys(m.s.byKey)) {
		q := m.s.byKey[key]
		unsure := false
		for _, seq := range q.waitingSeqs() {
			r, ok := m.crashes.found[seq]
			if !ok {
				continue
			}
			j := m.s.Extract(q, seq)
			j.Calls, j.NotBefore = r.calls, max(r.notBefore, 1)
			unsure = unsure || r.inAir
			parks := r.inAir && (m.crashes.once || r.keyless)
			if r.inAir && !parks && m.rnd.IntN(2) == 0 {
				j.Deaths = 1 + m.rnd.IntN(3)
			}
			switch {
			case r.cancelled: // the mark of its end was stored, or it waits for its letter still
				j.Phase = settling
				m.after(m.upTo(3*time.Millisecond), func() { m.s.Finished(j); m.finished++ })
			case parks:
				m.crashes.parked[r.seq] = true
				m.s.Pipe.stage(j, j.Priority)
				m.after(m.upTo(3*time.Millisecond), func() { m.s.Unstage(j) })
				m.after(4*time.Millisecond, func() { m.keepRecord(j); m.s.Finished(j); m.finished++ })
			}
		}
		q.cold = true
		if unsure && m.s.store.clock == OwnClock { // the records of the lost calls say so
			m.crashes.ledger[key] = max(m.crashes.ledger[key], m.now.Add(m.s.policy.DrainTime(q.Limits)))
		}
		known := m.crashes.ledger[key]
		if m.s.store.clock == OtherClock {
			q.floor = known
			continue
		}
		q.TAT = max(q.TAT, known)
	}
	m.part.Open, m.part.Reading = true, false
	m.s.agenda.touchAll()
}

// playCrashes plays one seed of a process that dies at any moment, and returns how often it died.
func playCrashes(t testing.TB, seed uint64) (died int) {
	m := newSimulation(t, seed)
	if m.rnd.IntN(3) == 0 {
		m.sendAway()
	}
	m.mortal().play()
	return m.crashes.died
}

// TestSimulationOfCrashes runs seeds in which the process dies at any moment and the next one continues from what would
// be in NATS. One seed alone: go test ./dispatcher/schedule -run OfCrashes/seed=7.
func TestSimulationOfCrashes(t *testing.T) {
	died := 0
	for seed := range seeds.Of(3_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			died += playCrashes(t, seed)
		})
	}
	t.Logf("the process died %d times", died)
}
