package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/ingest"
	"weir/ingest/await"
)

// book is a ledger on a nats-server of the test's.
type book struct {
	t  *testing.T
	js jetstream.JetStream
}

func newBook(t *testing.T) *book {
	t.Helper()
	b := &book{t, natstest.JetStream(t)}
	b.create()
	return b
}

func (b *book) create() {
	b.t.Helper()
	for name, prefix := range map[string]string{CallsStream: CallsPrefix, ResultsStream: ResultsPrefix} {
		_, err := b.js.CreateStream(b.t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{prefix + ">"}, AllowDirect: true})
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// put stores a message and returns its sequence.
func (b *book) put(m *nats.Msg) uint64 {
	b.t.Helper()
	ack, err := b.js.PublishMsg(b.t.Context(), m)
	if err != nil {
		b.t.Fatal(err)
	}
	return ack.Sequence
}

func (b *book) write(c Record) uint64 {
	b.t.Helper()
	return b.put(c.Message())
}

// result stores the result of a job; its id tells when the job was accepted, unless that is 0.
func (b *book) result(key, job, source string, seq uint64, accepted bucket.Micros) uint64 {
	b.t.Helper()
	id := "result." + OriginOf(source, seq, accepted)
	if accepted == 0 {
		id = fmt.Sprintf("result.%s.%d", source, seq)
	}
	return b.put(&nats.Msg{Subject: ResultSubject("pay", key), Header: nats.Header{ingest.HeaderMsgID: {id}, ingest.HeaderJobID: {job}}, Data: []byte("done")})
}

// spoil stores what is no record of pay's key k: torn ones, and one that names another key.
func (b *book) spoil() {
	b.t.Helper()
	subject := (&Record{API: "pay", Key: "k"}).Subject()
	for _, data := range []string{"", `{"api":"pay","key":"k","final":tr`, `{}`, `{"api":"pay","key":"other","final":true}`, `{"api":"other","key":"k","final":true}`} {
		b.put(&nats.Msg{Subject: subject, Data: []byte(data)})
	}
}

func (b *book) purge(stream string, below uint64) {
	b.t.Helper()
	s, err := b.js.Stream(b.t.Context(), stream)
	if err != nil {
		b.t.Fatal(err)
	}
	var opts []jetstream.StreamPurgeOpt
	if below > 0 {
		opts = append(opts, jetstream.WithPurgeSequence(below))
	}
	if err := s.Purge(b.t.Context(), opts...); err != nil {
		b.t.Fatal(err)
	}
}

// call is a record of a job of pay's, with the job's number as its sequence.
func call(key string, seq uint64, number int) Record {
	return Record{
		API: "pay", Key: key, Job: fmt.Sprint("job-", seq), Dedupe: fmt.Sprint("id-", seq), Stream: "Q", Seq: seq, Call: number, Attempt: number,
		Accepted: accepted(seq), Outcome: "retry",
	}
}

func done(c Record) Record {
	c.Final, c.Outcome = true, Done
	return c
}

var now = time.Now().Truncate(time.Microsecond).UTC()

func accepted(seq uint64) time.Time { return now.Add(time.Duration(seq) * time.Microsecond) }

// TestReadBack: records come back as they were written, in order, each once; those that a filter does not choose do not, and what is no
// record is counted.
func TestReadBack(t *testing.T) {
	b := newBook(t)
	first := done(call("k", 1, 1))
	first.Price, first.TAT, first.Costs = "0.40", 7, []int64{3}
	b.write(first)
	b.write(first) // again, after a crash
	b.spoil()
	b.write(call("l.*", 2, 1))
	other := call("k", 3, 1)
	other.API = "other"
	b.write(other)
	var later time.Time
	await.Until(t, "the server's clock to go on", func() bool {
		s, err := b.js.Stream(t.Context(), CallsStream)
		if err != nil {
			t.Fatal(err)
		}
		later = s.CachedInfo().State.LastTime.Add(time.Nanosecond)
		return time.Now().After(later)
	})
	b.write(call("k", 4, 2))
	for name, c := range map[string]struct {
		filter     Filter
		want       []uint64
		unreadable int
	}{
		"all":      {Filter{}, []uint64{1, 2, 3, 4}, 5},
		"an api":   {Filter{API: "pay"}, []uint64{1, 2, 4}, 5},
		"a key":    {Filter{API: "pay", Key: "l.*"}, []uint64{2}, 0},
		"no key":   {Filter{API: "pay", Key: "none"}, nil, 0},
		"a time":   {Filter{Since: later}, []uint64{4}, 0},
		"too late": {Filter{Since: time.Now().Add(time.Hour)}, nil, 0},
	} {
		var got []uint64
		unreadable, err := Read(t.Context(), b.js, c.filter, func(c *Record, read, of uint64) error {
			got = append(got, c.Seq)
			if c.Seq == 4 && read != of || c.Seq == 1 && read == of {
				t.Errorf("%s: record %d is number %d of %d", name, c.Seq, read, of)
			}
			if c.Seq == 1 && (c.At != 1 || time.Since(c.Stored).Abs() > time.Minute || c.Units(&bucket.Limit{Name: "l"}) != 1 || c.TAT != 7) {
				t.Errorf("%s: it came back as %+v", name, c)
			}
			return nil
		})
		if err != nil || !slices.Equal(got, c.want) || unreadable != c.unreadable {
			t.Errorf("%s: %v with %d unreadable, %v; want %v, %d", name, got, unreadable, err, c.want, c.unreadable)
		}
	}
	enough := errors.New("enough")
	if _, err := Read(t.Context(), b.js, Filter{}, func(*Record, uint64, uint64) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a reader that has enough gets %v", err)
	}
	if err := b.js.DeleteStream(t.Context(), CallsStream); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), b.js, Filter{}, nil); !errors.Is(err, ErrNoLedger) {
		t.Errorf("without a ledger: %v", err)
	}
}

// TestReadCharges: an account that has all up to a sequence gets what lies behind, up to another. A record that cannot be read is no
// call that is known to cost nothing.
func TestReadCharges(t *testing.T) {
	b := newBook(t)
	for seq := range uint64(5) {
		b.write(call("k", seq+1, 1))
		other := call("k", seq+1, 1)
		other.API, other.Stream = "other", "R"
		b.write(other)
	}
	read := func(after, last uint64) (got []uint64, err error) {
		err = ReadCharges(t.Context(), b.js, "pay", after, last, func(c *Record, seq uint64) {
			if got = append(got, seq); c.API != "pay" {
				t.Errorf("a call of %s is charged", c.API)
			}
		})
		return got, err
	}
	for _, c := range []struct {
		after, last uint64
		want        []uint64
	}{{0, 10, []uint64{1, 3, 5, 7, 9}}, {3, 7, []uint64{5, 7}}, {4, 6, []uint64{5}}, {9, 10, nil}, {10, 10, nil}, {5, 4, nil}, {7, 1 << 40, []uint64{9}}} {
		if got, err := read(c.after, c.last); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("behind %d up to %d: %v, %v; want %v", c.after, c.last, got, err, c.want)
		}
	}
	b.spoil()
	if _, err := read(9, 11); !errors.Is(err, ErrUnreadable) {
		t.Errorf("at a record that cannot be read: %v", err)
	}
	if _, err := read(11+4, 100); err != nil {
		t.Errorf("behind all that cannot be read: %v", err)
	}
}

// failing is a JetStream that answers the first looks at a stream with errors.
type failing struct {
	jetstream.JetStream
	errs chan error
}

func (f failing) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	select {
	case err := <-f.errs:
		return nil, err
	default:
		return f.JetStream.Stream(ctx, name)
	}
}

// lines are what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestFollow: whoever follows the ledger is told of all jobs that ended, those before and those after the beginning, also where there is
// no ledger yet, or it cannot be read. It is told of nothing else. That there is no ledger is no news, that it cannot be read is.
func TestFollow(t *testing.T) {
	b := newBook(t)
	b.spoil()
	b.write(call("k", 1, 1))
	b.write(done(call("k", 2, 1)))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	js, logged := failing{b.js, make(chan error, 2)}, make(lines, 100)
	js.errs <- jetstream.ErrStreamNotFound
	js.errs <- errors.New("no answer")
	told, ended := make(chan queue.Finished, 100), make(chan error, 1)
	f := Follower{JetStream: js, Dedupe: queue.NewDedupe(time.Hour), Log: slog.New(slog.NewTextHandler(logged, nil)), Tell: func(api string, f queue.Finished) {
		if api != "pay" {
			t.Errorf("told of api %q", api)
		}
		told <- f
	}}
	go func() { ended <- f.Run(ctx) }()
	want := queue.Finished{Key: "k", DedupeID: "id-2", Seq: 2, Accepted: accepted(2)}
	if got := await.Receive(t, "a job that had ended", told); got != want {
		t.Errorf("told of %+v, want %+v", got, want)
	}
	b.write(call("k", 3, 1))
	b.write(done(call("l", 4, 1)))
	if got := await.Receive(t, "a job that ends", told); got.Seq != 4 {
		t.Errorf("told of %+v", got)
	}
	if line := await.Receive(t, "the log", logged); !strings.Contains(line, "no answer") || len(logged) > 0 {
		t.Errorf("logged %q, and %d lines more", line, len(logged))
	}
	cancel()
	if err := await.Receive(t, "the follower's end", ended); err != nil {
		t.Error(err)
	}
	if len(logged) > 0 {
		t.Errorf("%d lines are logged at its end", len(logged))
	}
}

// TestLookUp: of a job the newest call and the result are found, though others had its sequence, or its key, or its id.
func TestLookUp(t *testing.T) {
	b := newBook(t)
	job := Job{API: "pay", Key: "k", ID: "job-7", Stream: "Q", Seq: 7, Accepted: bucket.MicrosOf(accepted(7))}
	look := func(since time.Time) Traces {
		t.Helper()
		found, err := LookUp(t.Context(), b.js, job, since)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := look(now.Add(-time.Hour)); found != (Traces{}) {
		t.Errorf("of a job that left no traces %+v is found", found)
	}
	before := call("k", 7, 9) // had the sequence before its stream was set back
	before.Accepted = accepted(6)
	elsewhere := call("k", 7, 9)
	elsewhere.Stream = "R"
	for _, c := range []Record{call("k", 6, 9), before, elsewhere, call("l", 7, 9)} {
		b.write(c)
	}
	b.spoil()
	b.result("k", "job-7", "R", 7, job.Accepted)
	b.result("k", "job-7", "Q", 6, job.Accepted)
	b.result("k", "job-7", "Q", 7, job.Accepted-1)
	timeless := b.result("k", "job-6", "Q", 7, 0)
	b.put(&nats.Msg{Subject: ResultSubject("pay", "k"), Header: nats.Header{ingest.HeaderMsgID: {"result.Q.seven"}, ingest.HeaderJobID: {"job-7"}}})
	if found := look(now.Add(-time.Hour)); found != (Traces{}) {
		t.Errorf("of others' traces %+v is found", found)
	}
	b.write(call("k", 7, 1))
	second := b.write(call("k", 7, 2))
	result := b.result("k", "job-7", "Q", 7, job.Accepted)
	found := look(now.Add(-time.Hour))
	if found.Record == nil || found.Record.Call != 2 || found.Record.At != second || found.Result != result {
		t.Errorf("found %+v, result %d; want call 2 at %d, result %d", found.Record, found.Result, second, result)
	}
	if found := look(time.Now().Add(time.Hour)); found != (Traces{}) {
		t.Errorf("of what was stored before %+v is found", found)
	}
	if job.ID = "job-6"; look(now.Add(-time.Hour)).Result != timeless {
		t.Error("a result whose id does not tell the time is not found")
	}
}

// TestSingleRecords: the newest record of a key, and the one at a sequence, as far as they are there and can be read.
func TestSingleRecords(t *testing.T) {
	b := newBook(t)
	if c, err := Newest(t.Context(), b.js, "pay", "k"); c != nil || err != nil {
		t.Errorf("of a key that was never called: %+v, %v", c, err)
	}
	b.write(call("k", 1, 1))
	at := b.write(call("k", 2, 1))
	b.write(call("l", 3, 1))
	if c, err := Newest(t.Context(), b.js, "pay", "k"); err != nil || c.Seq != 2 || c.At != at || c.Stored.IsZero() {
		t.Errorf("the newest is %+v, %v", c, err)
	}
	if c, err := At(t.Context(), b.js, 1); err != nil || c.Seq != 1 || c.At != 1 {
		t.Errorf("the first is %+v, %v", c, err)
	}
	b.purge(CallsStream, 2)
	if c, err := At(t.Context(), b.js, 1); c != nil || err != nil {
		t.Errorf("where the first was: %+v, %v", c, err)
	}
	b.spoil()
	if c, err := Newest(t.Context(), b.js, "pay", "k"); c != nil || !errors.Is(err, ErrUnreadable) {
		t.Errorf("where the newest is none: %+v, %v", c, err)
	}
	if c, err := At(t.Context(), b.js, 4); c != nil || !errors.Is(err, ErrUnreadable) {
		t.Errorf("a torn one: %+v, %v", c, err)
	}
}

// TestExtent: a ledger that has let go of records says since when it tells everything, also when it has none left.
func TestExtent(t *testing.T) {
	b := newBook(t)
	extent := func() Extent {
		t.Helper()
		e, err := ExtentOf(t.Context(), b.js)
		if err != nil || e.Born.IsZero() || e.Asked.Before(e.Born) {
			t.Fatalf("%+v, %v", e, err)
		}
		return e
	}
	reaches := func(at time.Time) bool {
		t.Helper()
		whole, err := Reaches(t.Context(), b.js, at)
		if err != nil {
			t.Fatal(err)
		}
		return whole
	}
	b.write(call("k", 1, 1))
	b.write(call("k", 2, 1))
	if e := extent(); !e.Begins.IsZero() || e.First != 1 || e.Last != 2 || !reaches(now.Add(-time.Hour)) {
		t.Errorf("a whole ledger: %+v", e)
	}
	b.purge(CallsStream, 2)
	if e := extent(); e.Begins.Before(e.Born) || e.Begins.After(e.Asked) || e.First != 2 || reaches(now.Add(-time.Hour)) || !reaches(e.Begins) {
		t.Errorf("one that begins with its second record: %+v", e)
	}
	b.purge(CallsStream, 0)
	if e := extent(); !e.Begins.Equal(e.Asked) || e.First != 3 || e.Last != 2 || reaches(now) {
		t.Errorf("one that was emptied: %+v", e)
	}
	if err := b.js.DeleteStream(t.Context(), CallsStream); err != nil {
		t.Fatal(err)
	}
	if _, err := ExtentOf(t.Context(), b.js); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("without a ledger: %v", err)
	}
	if whole, err := Reaches(t.Context(), b.js, now); whole || err == nil {
		t.Errorf("what is not there is said to reach back: %v, %v", whole, err)
	}
}

// tailReader reads a ledger's end as a dispatcher does, of pay's keys other than "unwanted", and notes whom it is told of.
type tailReader struct {
	*book
	*Tail
	bounds Bounds
	dedupe time.Duration
	ended  map[uint64]int // how often, by sequence
	tells  int            // how often it was told of some
}

func newTailReader(t *testing.T) *tailReader {
	t.Helper()
	return &tailReader{book: newBook(t), Tail: NewTail(), dedupe: time.Hour, ended: map[uint64]int{}}
}

func (r *tailReader) readTail() Extent {
	r.t.Helper()
	extent, err := r.Read(r.t.Context(), TailOptions{
		JetStream: r.js, Dedupe: r.dedupe, Bounds: r.bounds, APIs: []string{"pay"},
		Wants: func(_, key string) bool { return key != "unwanted" },
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
		Now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return extent
}

// TestTail: of each job the newest call is kept, of each key the latest arrival time, and of all partitions the ids of what has ended.
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

// TestTailIsReadAgain: a second reading takes the place of the first one's jobs, and is told only of ends that are new.
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

// TestIDsReachFurther: ends are told as far back as ids are known, though only the newest record is kept, and each of them once. Where
// ids are known no longer than records are kept, nothing is read beyond those.
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

// TestShorterReadingCounts: of two readings the one that reached less far counts, since it may be the one that a partition was read by.
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

// TestTailOfTwoAPIs: of apis that are read together, the ends are read from where those of both are known. Arrival times that have
// passed are let go of.
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

// TestCutTail: beyond the bound the older records go, and the tail tells how far it reaches.
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

// TestTailOfAPurgedLedger: what the ledger has let go of counts as unknown.
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

// TestTailOfResults: results from shortly before the newest record on are found, and where there is no record, all.
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

// TestTailThatFails: a reading that breaks off leaves the tail as it was.
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

// TestRecordOnTheWire: readers of other versions know records by these names.
func TestRecordOnTheWire(t *testing.T) {
	c := done(call("k", 1, 2))
	var fields map[string]any
	m := c.Message()
	if err := json.Unmarshal(m.Data, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api", "key", "job", "dedupe", "stream", "seq", "call", "attempt", "accepted", "planned", "outcome", "final", "tat"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("a record has no field %q", name)
		}
	}
	want := fmt.Sprintf("call.Q.1.%d.2", bucket.MicrosOf(c.Accepted))
	if id := m.Header.Get(ingest.HeaderMsgID); id != want || m.Subject != "weir.calls.pay.k" || !slices.Contains([]any{"k"}, fields["key"]) {
		t.Errorf("it is stored at %s as %s, want %s", m.Subject, id, want)
	}
}
