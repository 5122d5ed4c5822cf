package takeover

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/dispatcher/internal/seeds"
	"weir/dispatcher/recorder"
)

// plantedMistake is a mistake that the simulation must find; "" for none.
type plantedMistake string

const (
	intentsUnfenced        plantedMistake = "the stream takes intents of an earlier owner"
	resultUnbarred         plantedMistake = "a letter unknown is stored without a bar against a late result"
	barTakenForResult      plantedMistake = "a bar is taken for the result that has its id"
	writesWithoutRight     plantedMistake = "an owner that has lost its right goes on writing"
	deletesBeforeLetter    plantedMistake = "a job is deleted before its letter is stored"
	deletesBeforeRecord    plantedMistake = "a job is deleted before its record is stored"
	deletesInAnyOrder      plantedMistake = "markers are deleted before their job"
	recordsBeforeResult    plantedMistake = "a record is stored before its result"
	recordOfTheEarlierCall plantedMistake = "a late result's record is that of a call that has one"
	buriesBeforeMark       plantedMistake = "a letter is stored before the mark of the job's end"
	dropsIntentFirst       plantedMistake = "an intent is deleted before its call's record is stored"
	calledWithoutIntent    plantedMistake = "a job is called without an intent"
	repeatsWithoutKey      plantedMistake = "a lost call without a key is repeated"
	ignoresIntents         plantedMistake = "recovery does not read intents"
	ignoresRecords         plantedMistake = "recovery does not read records"
	ignoresOverruling      plantedMistake = "the mark of an end holds after another owner's intent"
	waitsUnmarked          plantedMistake = "a found job waits again, and only an old record tells of its last call"
	believesAfterCut       plantedMistake = "notes from before a power cut are believed"
	reusesUnmarked         plantedMistake = "another job's answer is stored without a mark of the end"
	reuseUnbarred          plantedMistake = "a job whose late answer is not barred waits again"
)

// mistakes lists every planted mistake.
var mistakes = slices.Concat([]plantedMistake{
	intentsUnfenced, resultUnbarred, barTakenForResult, writesWithoutRight, deletesBeforeLetter, deletesBeforeRecord,
	deletesInAnyOrder, recordsBeforeResult, recordOfTheEarlierCall, buriesBeforeMark, dropsIntentFirst, calledWithoutIntent,
	repeatsWithoutKey, ignoresIntents, ignoresRecords, ignoresOverruling, waitsUnmarked, believesAfterCut, reusesUnmarked,
	reuseUnbarred,
}, operationMistakes)

// TestSimulationOfRecovery runs seeds of a partition whose owners die, lose power or lose their right between any two
// writes, whose late writes arrive afterwards, and which may have no owner for minutes. From one seed on:
// go test ./dispatcher/takeover -run TestSimulationOfRecovery -args -seed 7.
func TestSimulationOfRecovery(t *testing.T) {
	for seed := range seeds.Of(100_000) {
		m := newRecoveryModel(seed, "")
		m.run()
		m.check()
		if len(m.wrong) > 0 {
			t.Fatalf("seed %d: %v", seed, m.wrong)
		}
	}
}

// TestSeedsRepeat checks that the seed alone decides what happens in the simulation, so that a seed that fails once fails
// again.
func TestSeedsRepeat(t *testing.T) {
	for seed := range uint64(200) {
		sums := map[uint64]bool{}
		for range 3 {
			m := newRecoveryModel(seed, "")
			m.course = fnv.New64a()
			m.run()
			m.check()
			sums[m.course.Sum64()] = true
		}
		if len(sums) > 1 {
			t.Errorf("seed %d had %d different courses in 3 runs", seed, len(sums))
		}
	}
}

// TestSimulationOfRecoveryFindsMistakes checks that the simulation finds each mistake that is planted. Some are found
// by one seed in thousands.
func TestSimulationOfRecoveryFindsMistakes(t *testing.T) {
	const most = 100_000
	for _, bug := range mistakes {
		tried, found := 0, false
		for seed := range seeds.Of(most) {
			m := newRecoveryModel(seed, bug)
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

// run lets events happen until every job has ended and no write is on its way.
func (m *recoveryModel) run() {
	const most = 3000
	m.takeOver()
	for range most {
		owner := m.owners[len(m.owners)-1]
		var ready []*jobsWay
		for _, o := range m.owners {
			for _, w := range o.ways {
				if !w.waiting && !w.over {
					ready = append(ready, w)
				}
			}
		}
		if m.course != nil {
			// course is a hash, which takes every write.
			_, _ = fmt.Fprintln(m.course, m.clock, m.seq, m.faults, len(ready), len(m.onTheWay), len(m.stream), len(m.records), len(m.unsynced))
		}
		if (len(ready)+len(m.onTheWay) == 0 || m.packs != nil && m.one(4)) && m.gather(owner) {
			continue
		}
		if len(ready)+len(m.onTheWay) == 0 {
			if !m.goesOn(owner) {
				return
			}
			continue
		}
		if m.faults > 0 && m.one(m.often) {
			m.faults--
			m.strike(owner)
			continue
		}
		if !owner.right && m.one(3) {
			m.takeOver()
			continue
		}
		if n := m.rnd.IntN(len(ready) + len(m.onTheWay)); n < len(ready) {
			m.step(ready[n])
		} else if !m.late || m.onTheWay[n-len(ready)].of == owner || m.one(5) {
			m.land(n - len(ready))
		}
	}
	m.fail("it does not come to an end")
}

// goesOn reports whether a takeover can still happen when nothing is under way.
func (m *recoveryModel) goesOn(owner *modelOwner) bool {
	left := false
	for _, msg := range m.stream {
		left = left || msg.job != nil
	}
	if left && owner.right {
		m.fail("a job stands in the stream, and its owner does nothing about it")
		return false
	}
	if left || m.faults > 0 && m.one(2) {
		m.faults = max(0, m.faults-1)
		m.lose(owner)
		m.takeOver()
		return true
	}
	return false
}

// strike causes a fault.
func (m *recoveryModel) strike(owner *modelOwner) {
	switch m.rnd.IntN(6) {
	case 0:
		m.cut()
	case 1, 2:
		m.lose(owner)
	case 3:
		m.rest()
	default:
		m.kill(owner)
	}
}

// check checks what must hold when everything has ended.
func (m *recoveryModel) check() {
	for _, j := range m.jobs {
		if n := len(j.letters); !j.result && n != 1 || j.result && n != 0 && !j.repeated && !j.untraced {
			m.fail("job %d has a result: %v, and %d letters", j.seq, j.result, n)
		}
		if (m.api.Idempotency == nil || m.packs != nil) && j.processed > 1 {
			m.fail("job %d was processed %d times", j.seq, j.processed)
		}
		unrecorded := 0
		for call := range j.called {
			if m.recordOf(j, call) == nil {
				unrecorded++
			}
		}
		if unrecorded > j.unlogged {
			m.fail("%d calls of job %d have no record", unrecorded, j.seq)
		}
	}
}

// kill ends an owner's process. Writes that it has sent may still arrive.
func (m *recoveryModel) kill(o *modelOwner) {
	m.lose(o)
	o.ended = true
	for _, way := range o.ways {
		way.stop()
		way.over = true
	}
	o.ways, o.rests = nil, nil
	m.onTheWay = slices.DeleteFunc(m.onTheWay, func(w *modelWrite) bool { return w.of == o && m.one(2) })
	for _, w := range m.onTheWay {
		if w.of == o {
			w.way = &jobsWay{over: true}
		}
	}
}

// lose takes an owner's right away. Its process continues until it notices.
func (m *recoveryModel) lose(o *modelOwner) { o.right = false }

// rest leaves the partition without an owner for minutes. All writes that are on their way arrive. By then the streams
// have forgotten the ids of records, and perhaps those of results: they know an id for two minutes. A takeover reads
// records of the last ten minutes, so the stream has forgotten the id of each record that the takeover does not read.
// Ids of letters are known for an hour.
func (m *recoveryModel) rest() {
	for _, o := range m.owners {
		m.kill(o)
	}
	for len(m.onTheWay) > 0 {
		m.land(0)
	}
	m.clock += 10 * time.Minute
	m.forgot = m.clock
	maps.DeleteFunc(m.known, func(id string, _ bool) bool { return strings.HasPrefix(id, "call.") || strings.HasPrefix(id, "end.") })
	for _, j := range m.jobs {
		if m.one(2) {
			delete(m.known, resultID(j))
			delete(m.known, reusedID(j))
		}
	}
}

// cut ends every process and restarts the machine: the recorders do not count then, and deletions may be undone.
func (m *recoveryModel) cut() {
	for _, o := range m.owners {
		m.kill(o)
		o.cut = true
	}
	for id := range m.entries {
		if n := m.notes[id+1]; m.one(2) {
			n.state = recorder.Prepared // the disk has an earlier state of the file
		}
	}
	m.onTheWay = nil
	back := m.unsynced[m.rnd.IntN(len(m.unsynced)+1):]
	m.unsynced = nil
	m.stream = append(m.stream, back...)
	slices.SortFunc(m.stream, func(a, b modelMessage) int { return int(a.seq) - int(b.seq) })
}
