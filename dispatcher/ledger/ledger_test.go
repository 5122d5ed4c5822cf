package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// book is a ledger on the test's own nats-server.
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
	for name, prefix := range map[string]ingest.Subjects{CallsStream: CallSubjects, ResultsStream: ResultSubjects} {
		_, err := b.js.CreateStream(b.t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{prefix.Below()}, AllowDirect: true})
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

// result stores the result of a job.
func (b *book) result(key, job, source string, seq uint64, accepted bucket.Micros) uint64 {
	b.t.Helper()
	id := "result." + OriginOf(source, seq, accepted)
	return b.put(&nats.Msg{Subject: ResultSubject("pay", key), Header: nats.Header{ingest.HeaderMsgID: {id}, ingest.HeaderJobID: {job}}, Data: []byte("done")})
}

// spoil stores messages that are no records of pay's key k: torn ones, and one that names another key.
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

// call returns the record of a call that was not the job's last. seq is the job's sequence and part of its ids; number
// is the number of the call.
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

// TestReadBack checks that records come back as they were written, in order, each once. Those that a filter does
// not choose do not come, and messages that are no records are counted.
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
		"two apis": {Filter{APIs: []string{"pay", "none"}}, []uint64{1, 2, 4}, 5},
		"one api":  {Filter{APIs: []string{"other"}}, []uint64{3}, 0},
		"many":     {Filter{APIs: append(slices.Repeat([]string{"none"}, mostChosen), "other")}, []uint64{3}, 0},
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

// TestReadCharges checks that an account that has counted up to one sequence gets the records behind it, up to another
// sequence. A record that cannot be read must not count as a call that cost nothing.
func TestReadCharges(t *testing.T) {
	b := newBook(t)
	for seq := range uint64(5) {
		b.write(call("k", seq+1, 1))
		other := call("k", seq+1, 1)
		other.API, other.Stream = "other", "R"
		b.write(other)
	}
	read := func(after, last uint64) (got []uint64, err error) {
		err = ReadCharges(t.Context(), b.js, Charges{APIs: []string{"pay"}, After: after, Last: last}, func(c *Record, seq uint64) {
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

// TestFollow checks that a Follower learns of all jobs that ended, before and after it began, even if there is
// no ledger yet or the ledger cannot be read for a while. It learns of nothing else. It logs that the ledger
// cannot be read, but not that there is none.
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

// TestLookUp checks that a job's newest call and its result are found, though other jobs had its sequence, its
// key or its id.
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
	b.put(&nats.Msg{Subject: ResultSubject("pay", "k"), Header: nats.Header{ingest.HeaderMsgID: {"result.Q.seven.9"}, ingest.HeaderJobID: {"job-7"}}})
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
}

// TestSingleRecords reads a key's newest record, and the one at a sequence, if they are there and can be read.
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

// TestUnreadableEnd checks that if the server cannot read the newest record and the newest result, those before
// them are still read. The key of that record must not count as never called.
func TestUnreadableEnd(t *testing.T) {
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	b := &book{t, natstest.Connect(t, ns)}
	b.create()
	accepted := bucket.MicrosOf(time.Now())
	for seq := range uint64(3) {
		b.write(call("k", seq+1, 1))
		b.result("k", fmt.Sprint("job-", seq+1), "Q", seq+1, accepted)
	}
	b.write(call("damaged", 4, 1))
	b.result("damaged", "job-4", "Q", 4, accepted)
	ns.Shutdown()
	ns.WaitForShutdown()
	for _, stream := range []string{CallsStream, ResultsStream} {
		natstest.Spoil(t, dir, stream, "damaged")
	}
	r := newTailReader(t)
	r.book = &book{t, natstest.Connect(t, natstest.Start(t, dir, 0))}
	r.readTail()
	if records, results := r.Detach("Q"); len(records) != 3 || len(results) != 3 {
		t.Errorf("%d records and %d results are read, want 3 of each", len(records), len(results))
	}
	if last, err := stream.LastOf(t.Context(), r.js.Conn(), CallsStream, CallsOf("pay")); err != nil || last != 4 {
		t.Errorf("the last record stands at %d, %v", last, err)
	}
	if last, err := stream.LastOf(t.Context(), r.js.Conn(), CallsStream, CallsOf("other")); err != nil || last != 0 {
		t.Errorf("the last record of an api that was never called stands at %d, %v", last, err)
	}
	for key, want := range map[string]error{"damaged": ErrUnreadable, "never": nil, "k": nil} {
		if c, err := Newest(t.Context(), r.js, "pay", key); !errors.Is(err, want) || (c != nil) != (key == "k") {
			t.Errorf("the newest record of %s: %+v, %v", key, c, err)
		}
	}
}

// TestExtent checks that a ledger that has removed records says since when it is complete, even if it has none
// left.
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

// TestRecordOnTheWire checks the names by which readers of other versions know a record's fields.
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
