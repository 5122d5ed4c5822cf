package jobindex

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

var began = time.Date(2026, time.January, 2, 15, 0, 0, 0, time.UTC)

// filled returns an index of n done jobs with one call each, one per millisecond, and of dead letters. Every hundredth
// job was answered 201. Nothing comes from a server.
func filled(t testing.TB, n, dead int) *Index {
	t.Helper()
	x := New(Options{Bytes: 1 << 40, SumBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	x.sums.Complete()
	x.calls, x.letters = shelf{begun: true, first: 1}, shelf{begun: true, first: 1}
	calls, letters := &source{name: ledger.CallsStream, shelf: &x.calls, whole: true}, &source{name: deadletter.Stream, shelf: &x.letters}
	for i := range n {
		if err := x.addNewer(calls, doneJob(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range dead {
		if err := x.addNewer(letters, deadJob(i)); err != nil {
			t.Fatal(err)
		}
	}
	x.calls.whole, x.letters.whole = true, true
	return x
}

func doneJob(n int) *item {
	i := &item{
		seq: uint64(n + 1), stored: began.Add(time.Duration(n) * time.Millisecond), ok: true, api: "pay", key: fmt.Sprint("key-", n%1000), //nolint:gosec // small
		job: fmt.Sprintf("0199c0de-0000-7000-8000-%012x", n), accepted: began, status: 200, calls: 1, outcome: ledger.Done,
	}
	if n%100 == 0 {
		i.status = 201
	}
	return i
}

func deadJob(n int) *item {
	return &item{
		seq: uint64(n + 1), stored: began.Add(time.Duration(n)*time.Millisecond + 500*time.Microsecond), ok: true, api: "sms", key: "k", job: fmt.Sprint("dead-", n), //nolint:gosec // small
		status: 503, outcome: string(deadletter.Exhausted),
	}
}

func (x *Index) list(q Question) Page {
	page := Page{}
	for _, s := range x.views(q.Done, q.Dead, false) {
		found, looked := x.matchesLocked(s.name, s.shelf, &q)
		page.Jobs, page.Looked = append(page.Jobs, found...), page.Looked+looked
	}
	return page.first(q.Limit)
}

// TestWorkOfAList checks the bound on the work for a list of many ended jobs, and on the index's memory. Neither the
// first page nor one in the middle costs more with more jobs: BenchmarkMillionJobs has a million.
func TestWorkOfAList(t *testing.T) {
	t.Parallel()
	const many, dead = 100_000, 10_000
	x := filled(t, many, dead)
	if per := (x.calls.bytes + x.letters.bytes) / (many + dead); per > 114 {
		t.Errorf("an entry takes %d bytes", per)
	}
	newest := x.list(Question{Done: true, Dead: true, Limit: 50})
	if len(newest.Jobs) != 50 || newest.Looked > 2*51 || newest.Jobs[0].Job != doneJob(many-1).job {
		t.Errorf("the first page has %d jobs, the newest is %+v, and took %d looks", len(newest.Jobs), newest.Jobs[0], newest.Looked)
	}
	after := Place{At: doneJob(many / 2).stored.UnixNano(), Stream: ledger.CallsStream, Seq: many/2 + 1}
	middle := x.list(Question{Done: true, Limit: 50, Filter: Filter{After: after}})
	if middle.Jobs[0].Job != doneJob(many/2-1).job || middle.Looked > 60 {
		t.Errorf("a page in the middle begins with %+v, after %d looks", middle.Jobs[0], middle.Looked)
	}
	rare := x.list(Question{Done: true, Limit: 50, Filter: Filter{Status: deadletter.StatusRange{From: 201, To: 201}, API: "pay"}})
	if len(rare.Jobs) != 50 || rare.Looked > 51*100 || rare.Jobs[49].Status != 201 {
		t.Errorf("a page of every hundredth job has %d jobs and took %d looks", len(rare.Jobs), rare.Looked)
	}
	none := x.list(Question{Done: true, Dead: true, Limit: 50, Filter: Filter{Part: "not there"}})
	if len(none.Jobs) != 0 || none.Looked != many+dead {
		t.Errorf("a part that no id has: %d jobs, %d looks", len(none.Jobs), none.Looked)
	}
	one := x.list(Question{Done: true, Limit: 50, Filter: Filter{Part: fmt.Sprintf("%012x", 4711)}})
	if len(one.Jobs) != 1 || one.Jobs[0].Job != doneJob(4711).job || !one.Jobs[0].Accepted.Equal(began) {
		t.Errorf("a part of one id: %+v", one.Jobs)
	}
	old := x.list(Question{Done: true, Limit: 50, Filter: Filter{Since: doneJob(many - 10).stored}})
	if len(old.Jobs) != 10 || old.Looked != 11 {
		t.Errorf("the last ten milliseconds: %d jobs, %d looks", len(old.Jobs), old.Looked)
	}
}

// TestPagesHaveEachJobOnce checks that successive pages lack no job and repeat none, over both shelves, even if jobs
// end meanwhile.
func TestPagesHaveEachJobOnce(t *testing.T) {
	t.Parallel()
	const n, dead = 3000, 2000
	x := filled(t, n, dead)
	seen := map[string]int{}
	q := Question{Done: true, Dead: true, Limit: 170}
	var before *Ended
	for pages := 0; ; pages++ {
		page := x.list(q)
		for i := range page.Jobs {
			if j := &page.Jobs[i]; before != nil && before.Place.Compare(j.Place) >= 0 {
				t.Fatalf("%+v comes behind %+v", j, before)
			} else {
				before = j
			}
			seen[page.Jobs[i].Job]++
		}
		if !page.More {
			break
		}
		text, err := before.Place.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := q.After.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}
		if err := x.addNewer(&source{shelf: &x.calls}, doneJob(n+pages)); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != n+dead {
		t.Errorf("%d jobs were listed, there were %d", len(seen), n+dead)
	}
	for job, times := range seen {
		if times != 1 {
			t.Errorf("%s was listed %d times", job, times)
		}
	}
}

// TestMemoryIsBounded checks that a full index forgets the oldest jobs, says how far back it lists, and does not claim
// to know older ids.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	x := filled(t, 0, 0)
	x.opts.Bytes = 2 << 20
	calls := &source{shelf: &x.calls, whole: true}
	const n = 100_000
	for i := range n {
		if err := x.addNewer(calls, doneJob(i)); err != nil {
			t.Fatal(err)
		}
		if held := x.calls.bytes + x.letters.bytes; held > x.opts.Bytes {
			t.Fatalf("after %d jobs it holds %d bytes", i, held)
		}
	}
	kept := 0
	var oldest int64
	x.calls.each(1<<62, func(_ *block, e *entry) bool { kept, oldest = kept+1, e.stored; return true })
	if kept < 10_000 || x.calls.whole || x.calls.building() || x.calls.sinceTime().UnixNano() != oldest {
		t.Errorf("%d jobs are kept; whole is %t, building %t, since %s", kept, x.calls.whole, x.calls.building(), x.calls.sinceTime())
	}
	if x.addOlder(calls, &item{seq: x.calls.first - 1, ok: true, job: "older", outcome: ledger.Done, stored: time.Unix(0, oldest-1)}) && x.calls.bytes > x.opts.Bytes {
		t.Error("an older job was added to a full index")
	}
}

// BenchmarkMillionJobs measures the slowest question, which examines every entry.
func BenchmarkMillionJobs(b *testing.B) {
	x := filled(b, 1_000_000, 0)
	runtime.GC()
	for _, q := range []struct {
		name string
		Question
	}{
		{"first", Question{Done: true, Limit: 50}},
		{"key", Question{Done: true, Limit: 50, Filter: Filter{API: "pay", Key: "key-17"}}},
		{"part", Question{Done: true, Limit: 50, Filter: Filter{Part: "not there"}}},
	} {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				x.list(q.Question)
			}
		})
	}
	b.Run("traces", func(b *testing.B) {
		for b.Loop() {
			x.tracesOf("never")
		}
	})
}
