package jobindex

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestWorkOfTraces checks the bound on the entries that are examined for the traces of one id. It is far below the
// number of ended jobs.
func TestWorkOfTraces(t *testing.T) {
	t.Parallel()
	const many, most = 300_000, 100 * perBlock
	x := filled(t, many, many/10)
	for _, n := range []int{0, many / 2, many - 1} {
		found := x.tracesOf(doneJob(n).job)
		if !slices.Equal(found.Calls, []uint64{uint64(n + 1)}) || len(found.Letters) != 0 || found.looked > most { //nolint:gosec // small
			t.Errorf("job %d: %v and %v, after %d looks", n, found.Calls, found.Letters, found.looked)
		}
	}
	if found := x.tracesOf(deadJob(7).job); !slices.Equal(found.Letters, []uint64{8}) || len(found.Calls) != 0 || found.looked > most {
		t.Errorf("a dead job: %+v, after %d looks", found, found.looked)
	}
	if found := x.tracesOf("never"); len(found.Calls)+len(found.Letters) != 0 || found.looked > most {
		t.Errorf("no job: %+v, after %d looks", found, found.looked)
	}
}

// aheadByReading counts what Index.Ahead counts, by reading the key's records one by one.
func aheadByReading(records []*item, w *Wait) int {
	var found Ahead
	from, to := w.Stored()
	for _, r := range records {
		if r.stored.Before(from) || r.stored.After(to) || r.api != w.API || r.key != w.Key || r.uncalled && r.seq != w.Seq {
			continue
		}
		if !found.Add(r.seq == w.Seq, r.job != w.Job && w.Began(r.started)) {
			break
		}
	}
	return found.N
}

// TestAheadIsAsRead checks that the index counts the calls that began during a wait as a reading of the records does,
// in whichever part of the shelf they are. It also checks that the index knows when it cannot tell.
func TestAheadIsAsRead(t *testing.T) {
	t.Parallel()
	const n, half = 8 * perBlock, 4*perBlock + 100
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a repeatable test
	var records []*item
	for i := range n {
		r := doneJob(i)
		r.key = fmt.Sprint("key-", random.IntN(3))
		if random.IntN(100) == 0 {
			r.key = "rare"
		}
		r.started = r.stored.Add(-time.Duration(random.IntN(50_000)) * time.Microsecond)
		r.accepted = r.started.Add(-time.Duration(random.IntN(2_000_000)) * time.Microsecond)
		if random.IntN(5) == 0 {
			r.outcome = "" // another call follows
		}
		r.uncalled = random.IntN(4) == 0
		records = append(records, r)
	}
	x := New(Options{Bytes: 1 << 40, Log: slog.New(slog.DiscardHandler)})
	x.calls = shelf{begun: true, first: half + 1, last: half}
	calls := &source{name: ledger.CallsStream, shelf: &x.calls, whole: true}
	for i := range n - half {
		if err := x.addNewer(calls, records[half+i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range half {
		x.addOlder(calls, records[half-1-i])
	}
	x.calls.whole = true
	waitOf := func(r *item) *Wait {
		return &Wait{API: r.api, Key: r.key, Job: r.job, Seq: r.seq, Accepted: r.accepted, Started: r.started}
	}
	counted := 0
	for range 2000 {
		w := waitOf(records[random.IntN(n)])
		want := aheadByReading(records, w)
		if got := x.Ahead([]Wait{*w}); got[0] != want {
			t.Fatalf("during %+v began %d calls, and %d by reading", w, got[0], want)
		}
		counted = max(counted, want)
	}
	if counted != MostAhead {
		t.Errorf("no wait had the most calls, but at most %d", counted)
	}
	last := waitOf(records[n-1])
	last.Accepted = last.Started.Add(-time.Millisecond)
	if x.calls.whole = false; x.Ahead([]Wait{*last})[0] == NotKnown {
		t.Error("an index that goes back to the wait does not know it")
	}
	if got := x.Ahead([]Wait{*waitOf(records[0])}); got[0] != NotKnown {
		t.Errorf("an index that begins within the wait counts %d", got[0])
	}
	missing := last.Seq + 1
	if got := x.Ahead([]Wait{{API: last.API, Key: last.Key, Job: last.Job, Seq: missing, Accepted: last.Accepted, Started: last.Started}}); got[0] != NotKnown {
		t.Errorf("an index that has not come to the call counts %d", got[0])
	}
	slow := *records[n-1]
	slow.seq, slow.started, slow.uncalled = n+1, slow.stored.Add(-time.Hour), false
	if err := x.addNewer(calls, &slow); err != nil {
		t.Fatal(err)
	}
	if got := x.Ahead([]Wait{*last}); got[0] != NotKnown {
		t.Errorf("with a call of an hour, the start of which the index does not have, it counts %d", got[0])
	}
	if _, looked := x.aheadLocked(&Wait{API: "pay", Key: "none", Started: last.Started, Accepted: last.Accepted.Add(-4 * time.Second)}); looked > perBlock {
		t.Errorf("a key without calls took %d looks", looked)
	}
}

// TestEventsOfAnID checks that the index has the sequences of an id's events, both of those stored before it began and
// of later ones.
func TestEventsOfAnID(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.create(deadletter.EventsStream, "weir.events.>")
	tell := func(job string) {
		t.Helper()
		e := deadletter.Event{Type: deadletter.DeadEvent, API: "pay", Key: "k", Data: deadletter.DeadData{Job: job, Reason: deadletter.Rejected}}
		if err := e.Publish(context.Background(), s.js); err != nil {
			t.Fatal(err)
		}
	}
	tell("one")
	tell("")
	tell("two")
	x := s.run(1 << 30)
	s.await("the whole index", x, Question{Done: true, Dead: true, Limit: 1}, func(p *Page) bool {
		found := x.Traces(t.Context(), "one")
		return !p.Building && found.HasEvents()
	})
	tell("one")
	for job, want := range map[string][]uint64{"one": {4, 1}, "two": {3}, "never": {}} {
		if found := x.Traces(t.Context(), job); !found.HasEvents() || !slices.Equal(found.Events, want) {
			t.Errorf("the events of %s are %v, of all: %t", job, found.Events, found.HasEvents())
		}
	}
}
