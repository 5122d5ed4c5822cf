package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// tailReader reads a ledger's end as a dispatcher does, of pay's keys other than "unwanted", and notes the ended
// jobs that it is told of.
type tailReader struct {
	*book
	*Tail
	bounds Bounds
	dedupe time.Duration
	wants  func(key string) bool // nil: all but "unwanted"
	queued func(stream string) bool
	ended  map[uint64]int // how often, by sequence
	tells  int            // how often it was told of some
	low    []uint64       // the jobs of calls that took more than was estimated
}

func newTailReader(t *testing.T) *tailReader {
	t.Helper()
	return &tailReader{book: newBook(t), Tail: NewTail(), dedupe: time.Hour, ended: map[uint64]int{}}
}

func (r *tailReader) readTail() Extent {
	r.t.Helper()
	extent, err := r.Read(r.t.Context(), TailOptions{
		JetStream: r.js, Dedupe: r.dedupe, Bounds: r.bounds, APIs: []string{"pay"},
		Wants: func(_, key string) bool {
			if r.wants != nil {
				return r.wants(key)
			}
			return key != "unwanted"
		},
		Queued: r.queued,
		Ended: func(api string, jobs []queue.Finished) {
			if api != "pay" || len(jobs) > tellAtOnce {
				r.t.Errorf("told of %d jobs of %s at once", len(jobs), api)
			}
			r.tells++
			for _, f := range jobs {
				r.ended[f.Seq]++
			}
		},
		TATOf: func(c *Record, stored, began time.Time) bucket.Micros {
			if stored.IsZero() || began.Before(stored) {
				r.t.Errorf("stored at %v, read from %v on", stored, began)
			}
			return c.TAT
		},
		Low: func(c *Record) { r.low = append(r.low, c.Seq) },
		Now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return extent
}

// TestTailTellsLowEstimates checks that a reading reports the wanted records whose calls took more than was estimated.
func TestTailTellsLowEstimates(t *testing.T) {
	r := newTailReader(t)
	for seq, key := range map[uint64]string{1: "k", 2: "unwanted", 3: "k"} {
		c := call(key, seq, 1)
		if c.Limits, c.Costs = []string{"tokens"}, []int64{500}; seq < 3 {
			c.Estimated = []int64{100}
		}
		r.write(c)
	}
	if r.readTail(); !slices.Equal(r.low, []uint64{1}) {
		t.Errorf("told of the jobs %v, want the first", r.low)
	}
}

// TestTailOfAQueueOnly checks that records and results of one partition's keys that name another partition's
// queue do not replace what was read for that queue: its job would be called again. Such records exist if keys
// had other partitions in a stream that is gone.
func TestTailOfAQueueOnly(t *testing.T) {
	r := newTailReader(t)
	is := func(want string) func(string) bool { return func(got string) bool { return got == want } }
	r.write(done(call("k", 1, 1)))
	r.result("k", "job-1", "Q", 1, bucket.MicrosOf(accepted(1)))
	r.write(done(call("l", 2, 1)))
	r.result("l", "job-2", "Q", 2, bucket.MicrosOf(accepted(2)))
	r.wants, r.queued = is("k"), is("Q")
	r.readTail()
	r.wants, r.queued = is("l"), is("R")
	r.readTail()
	records, results := r.Detach("Q")
	if !records[1].Final || results[1].At == 0 {
		t.Errorf("what was read of a queue was lost to a reading for another one: %+v, %+v", records, results)
	}
}

// TestTail checks that the newest call of each job, the latest arrival time of each key, and the ids of ended
// jobs of all partitions are kept.
func TestTail(t *testing.T) {
	r := newTailReader(t)
	if r.Covers("pay", 1<<60) || r.Knows("pay", now.Add(time.Hour)) || r.ReadAt("pay") != 0 {
		t.Error("a tail that has read nothing says that it has")
	}
	late := bucket.MicrosOf(now.Add(time.Hour))
	for number, tat := range []bucket.Micros{late - 5, late, late - 3} {
		c := call("k", 1, number+1)
		c.TAT, c.Status, c.Detail, c.Idempotency = tat, 500, fmt.Sprint("failure ", number+1), "once"
		r.write(c)
	}
	again := call("k", 1, 2) // a call before the newest, recorded late
	again.Dedupe, again.Accepted = "another id of the same call", accepted(3)
	r.write(again)
	r.spoil()
	ended := done(call("k", 2, 1))
	ended.Idempotency = "once"
	r.write(ended)
	r.write(done(call("unwanted", 3, 1)))
	old := done(call("k", 4, 1))
	old.Accepted = now.Add(-2 * time.Hour)
	r.write(old)
	other := done(call("k", 5, 1))
	other.API = "other"
	r.write(other)
	extent := r.readTail()
	if extent.Last != r.write(call("l", 6, 1))-1 || !extent.Begins.IsZero() {
		t.Errorf("the ledger reached as far as %+v", extent)
	}
	if want := map[uint64]int{2: 1, 3: 1}; !maps.Equal(r.ended, want) {
		t.Errorf("told of %v, want %v", r.ended, want)
	}
	if r.TAT("pay", "k") != late || r.TAT("pay", "unwanted") != 0 || r.TAT("other", "k") != 0 {
		t.Errorf("arrival times: %v, %v, %v", r.TAT("pay", "k"), r.TAT("pay", "unwanted"), r.TAT("other", "k"))
	}
	if !r.Covers("pay", 0) || !r.Knows("pay", now) || r.Covers("other", 1<<60) || r.ReadAt("pay") < bucket.MicrosOf(now) {
		t.Error("it was all read, and the tail does not say so")
	}
	records, results := r.Detach("Q")
	if len(records) != 3 || len(results) != 0 {
		t.Fatalf("%d jobs and %d results are known", len(records), len(results))
	}
	last := records[1]
	entry := func(seq uint64) queue.Entry {
		return queue.Entry{Seq: seq, Time: accepted(seq), Header: nats.Header{ingest.HeaderMsgID: {ingest.StoredID("k", fmt.Sprint("id-", seq))}}}
	}
	if last.Call != 3 || last.Attempt != 3 || last.Detail != "failure 3" || last.At != 3 || last.Identity != "once" || last.Final || last.PushedBack() {
		t.Errorf("the newest call of a job: %+v", last)
	}
	moved, renamed := entry(1), entry(1)
	moved.Time, renamed.Header = accepted(2), entry(2).Header
	if !last.Of(entry(1)) || last.Of(moved) || last.Of(renamed) {
		t.Error("a record is not taken for its job's, or for another's")
	}
	if done := records[2]; !done.Final || done.Outcome != Done || done.At != 0 || done.Identity != "" || done.KeySum != queue.KeySum("k") {
		t.Errorf("the call of a job that has ended: %+v", done)
	}
	if again, _ := r.Detach("Q"); again != nil {
		t.Errorf("%d jobs are given away twice", len(again))
	}
}

// TestTailIsReadAgain checks that a second reading replaces the first one's jobs, and reports only new ends.
func TestTailIsReadAgain(t *testing.T) {
	r := newTailReader(t)
	r.bounds.Age = time.Minute // ids reach further
	const jobs = tellAtOnce + 100
	for seq := range uint64(jobs) {
		publish := done(call("k", seq+1, 1))
		if _, err := r.js.PublishMsgAsync(publish.Message()); err != nil {
			t.Fatal(err)
		}
	}
	await.Receive(t, "the records to be stored", r.js.PublishAsyncComplete())
	r.readTail()
	if len(r.ended) != jobs || r.tells != 2 {
		t.Fatalf("told of %d jobs of %d, %d times", len(r.ended), jobs, r.tells)
	}
	records, _ := r.Detach("Q")
	if len(records) != jobs {
		t.Fatalf("%d jobs of %d are kept", len(records), jobs)
	}
	r.readTail()
	r.write(done(call("k", jobs+1, 1)))
	r.bounds.Age = time.Nanosecond
	r.readTail()
	if again, _ := r.Detach("Q"); len(again) != 1 {
		t.Errorf("%d jobs are kept of a reading that read one record", len(again))
	}
	if r.ended[1] != 2 || r.ended[jobs+1] != 1 { // the first time all, the second time all records that are kept
		t.Errorf("told %d times of the first end, %d times of the last", r.ended[1], r.ended[jobs+1])
	}
	if r.Covers("pay", 0) {
		t.Error("the second reading read one record, and the tail covers all")
	}
	if !r.Covers("pay", bucket.MicrosOf(time.Now().Add(time.Minute))) {
		t.Error("the tail does not cover what was recorded after it was read")
	}
}

// TestIDsReachFurther checks that ends are reported as far back as ids are known, each once, though only the
// newest record is kept. If ids are known no longer than records are kept, nothing older is read.
func TestIDsReachFurther(t *testing.T) {
	r := newTailReader(t)
	r.bounds.Age = time.Nanosecond
	write := func(first, last uint64) {
		for seq := first; seq <= last; seq++ {
			r.write(done(call(fmt.Sprint("k", seq), seq, 1)))
		}
	}
	write(1, 5)
	r.readTail()
	write(6, 8)
	r.readTail()
	if want := map[uint64]int{1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}; !maps.Equal(r.ended, want) {
		t.Errorf("told of %v, want each once", r.ended)
	}
	if records, _ := r.Detach("Q"); len(records) != 1 { // what the first reading found is outdated
		t.Errorf("%d records are kept", len(records))
	}
	short := newTailReader(t)
	short.bounds.Age, short.dedupe = time.Nanosecond, 0
	r = short
	write(1, 5)
	r.readTail()
	r.write(done(call("unwanted", 6, 1)))
	r.readTail()
	if want := map[uint64]int{5: 1}; !maps.Equal(r.ended, want) {
		t.Errorf("told of %v, want %v", r.ended, want)
	}
}

// TestShorterReadingCounts checks that of two readings the one that reached less far counts, since a partition
// may have been read by it.
func TestShorterReadingCounts(t *testing.T) {
	whole := Bounds{Age: 2 * time.Hour, Leeway: 2 * time.Hour}
	for name, c := range map[string]struct {
		first                  Bounds
		knows, coversBeginning bool
	}{
		"as far":        {whole, true, true},
		"fewer records": {Bounds{Age: time.Nanosecond, Leeway: 2 * time.Hour}, false, false},
		"fewer results": {Bounds{Age: 2 * time.Hour, Leeway: time.Nanosecond}, false, true},
	} {
		r := newTailReader(t)
		for seq := range uint64(3) {
			r.write(call("k", seq+1, 1))
		}
		for _, r.bounds = range []Bounds{c.first, whole} {
			r.readTail()
		}
		if knows, covers := r.Knows("pay", now.Add(-time.Hour)), r.Covers("pay", 0); knows != c.knows || covers != c.coversBeginning {
			t.Errorf("%s: knows what was stored an hour ago: %v, covers all: %v", name, knows, covers)
		}
	}
}

// TestTailOfTwoAPIs checks that for apis that are read together the ends are read from where those of both are
// known. Passed arrival times are dropped.
func TestTailOfTwoAPIs(t *testing.T) {
	r := newTailReader(t)
	r.bounds.Age = time.Nanosecond
	pay, other := done(call("k", 1, 1)), done(call("k", 2, 1))
	other.API, other.TAT = "other", bucket.MicrosOf(now.Add(-TailAge-time.Minute))
	pay.TAT = bucket.MicrosOf(now)
	r.write(other)
	r.write(pay)
	r.readTail() // of pay alone
	told := map[string]int{}
	options := TailOptions{
		JetStream: r.js, Dedupe: r.dedupe, Bounds: r.bounds, APIs: []string{"pay", "other"}, Wants: func(string, string) bool { return true },
		Ended: func(api string, jobs []queue.Finished) { told[api] += len(jobs) },
		TATOf: func(c *Record, _, _ time.Time) bucket.Micros { return c.TAT }, Now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) },
	}
	if _, err := r.Read(t.Context(), options); err != nil || told["other"] != 1 {
		t.Errorf("told of %v, %v", told, err)
	}
	options.Bounds.Age = time.Hour
	if _, err := r.Read(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	later := options
	later.Now = func() bucket.Micros { return bucket.MicrosOf(now.Add(TailAge + time.Minute)) }
	later.Wants = func(string, string) bool { return false }
	if r.TAT("pay", "k") == 0 {
		t.Error("an arrival time within ten minutes is forgotten")
	}
	if _, err := r.Read(t.Context(), later); err != nil || r.TAT("pay", "k") != 0 || r.TAT("other", "k") != 0 {
		t.Errorf("arrival times that have passed are kept: %v, %v, %v", r.TAT("pay", "k"), r.TAT("other", "k"), err)
	}
}

// TestCutTail checks that older records beyond the bound are dropped, and that the tail says how far it reaches.
func TestCutTail(t *testing.T) {
	r := newTailReader(t)
	r.bounds = Bounds{Records: 10}
	for seq := range uint64(34) {
		c := call(fmt.Sprint("k", seq), seq+1, 1)
		c.TAT = bucket.MicrosOf(now.Add(time.Hour))
		r.write(c)
	}
	r.readTail()
	records, _ := r.Detach("Q")
	if _, kept := records[34]; len(records) < 5 || len(records) > 10 || !kept {
		t.Errorf("%d records are kept", len(records))
	}
	if r.Covers("pay", 0) || r.Knows("pay", now.Add(-time.Hour)) {
		t.Error("records were let go of, and the tail covers all")
	}
	if !r.Covers("pay", bucket.MicrosOf(time.Now().Add(time.Minute))) || !r.Knows("pay", time.Now()) {
		t.Error("the tail does not cover its own end")
	}
	early, err := At(t.Context(), r.js, 5)
	if err != nil || r.Knows("pay", early.Stored) {
		t.Errorf("the fifth record was let go of, and the tail knows what was stored since: %v", err)
	}
	if r.TAT("pay", "k0") != 0 || r.TAT("pay", "k33") == 0 {
		t.Error("arrival times of the wrong records are kept")
	}
}

// TestLatestArrivalTimeCounts checks that the latest arrival time of a key counts, though records with earlier ones were
// stored after it: in the younger half of the records, and in a second reading. Calls of a key may end in another order
// than they began, and its next call would start too early otherwise.
func TestLatestArrivalTimeCounts(t *testing.T) {
	r := newTailReader(t)
	r.bounds = Bounds{Records: 4} // two in each half
	late := bucket.MicrosOf(now.Add(time.Hour))
	write := func(seq uint64, tat bucket.Micros) {
		c := call("k", seq, 1)
		c.TAT = tat
		r.write(c)
	}
	for i, tat := range []bucket.Micros{late - 3, late, late - 2, late - 1} {
		write(uint64(i+1), tat)
	}
	if r.readTail(); r.TAT("pay", "k") != late {
		t.Errorf("the arrival time is %v before the latest one", r.TAT("pay", "k").Until(late))
	}
	write(5, late-4)
	r.bounds.Age = time.Nanosecond
	if r.readTail(); r.TAT("pay", "k") != late {
		t.Errorf("after a second reading the arrival time is %v before the latest one", r.TAT("pay", "k").Until(late))
	}
}

// TestTailOfAPurgedLedger checks that what the ledger has removed counts as unknown.
func TestTailOfAPurgedLedger(t *testing.T) {
	r := newTailReader(t)
	for seq := range uint64(4) {
		r.write(done(call("k", seq+1, 1)))
	}
	r.purge(CallsStream, 4)
	if extent := r.readTail(); extent.Begins.IsZero() || extent.First != 4 {
		t.Errorf("the ledger reached as far as %+v", extent)
	}
	if r.Covers("pay", bucket.MicrosOf(now)) || r.Knows("pay", now.Add(-time.Minute)) || len(r.ended) != 1 {
		t.Errorf("three records are gone, and the tail covers them; told of %v", r.ended)
	}
	r.purge(CallsStream, 0)
	r.readTail()
	if r.Covers("pay", bucket.MicrosOf(time.Now())) || r.Knows("pay", now) {
		t.Error("all records are gone, and the tail covers them")
	}
	if !r.Covers("pay", bucket.MicrosOf(time.Now().Add(ServerSkew+time.Minute))) {
		t.Error("the tail does not cover what was recorded after it was read")
	}
}

// TestTailOfResults checks that results since shortly before the newest record are found, and all results if
// there is no record.
func TestTailOfResults(t *testing.T) {
	r := newTailReader(t)
	sum := queue.KeySum("k")
	at := r.result("k", "job-1", "Q", 1, bucket.MicrosOf(accepted(1)))
	r.result("unwanted", "job-2", "Q", 2, bucket.MicrosOf(accepted(2)))
	r.put(&nats.Msg{Subject: ResultSubject("other", "k"), Header: nats.Header{ingest.HeaderMsgID: {"result.Q.3.3"}, ingest.HeaderJobID: {"job-3"}}})
	r.put(&nats.Msg{Subject: ResultSubject("pay", "k"), Header: nats.Header{ingest.HeaderMsgID: {"letter.Q.4"}, ingest.HeaderJobID: {"job-4"}}})
	r.readTail()
	_, results := r.Detach("Q")
	found := results[1]
	if len(results) != 1 || found.At != at || found.KeySum != sum {
		t.Fatalf("without a record: %+v", results)
	}
	entry := queue.Entry{Seq: 1, Time: accepted(1), Header: nats.Header{ingest.HeaderJobID: {"job-1"}}}
	later, renamed := entry, entry
	later.Time, renamed.Header = accepted(2), nats.Header{ingest.HeaderJobID: {"job-2"}}
	if !found.Of(entry) || found.Of(later) || found.Of(renamed) {
		t.Error("a result is not taken for its job's, or for another's")
	}
	r.write(call("k", 9, 1))
	r.readTail()
	if _, results = r.Detach("Q"); len(results) != 1 {
		t.Errorf("%d results within the leeway before the newest record are found", len(results))
	}
	r.bounds.Leeway = time.Nanosecond
	r.write(call("k", 10, 1))
	r.readTail()
	if _, results = r.Detach("Q"); len(results) != 0 {
		t.Errorf("%d results from before the leeway are found", len(results))
	}
	if r.Knows("pay", now) {
		t.Error("results before the leeway were not read, and the tail knows them")
	}
}

// TestTailThatFails checks that a reading that breaks off leaves the tail unchanged.
func TestTailThatFails(t *testing.T) {
	r := newTailReader(t)
	r.write(done(call("k", 1, 1)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Read(ctx, TailOptions{JetStream: r.js, APIs: []string{"pay"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a reading whose context has ended: %v", err)
	}
	if r.Covers("pay", 1<<60) || r.ReadAt("pay") != 0 {
		t.Error("what was not read counts as read")
	}
}
