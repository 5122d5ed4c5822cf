package jobindex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// store is a nats-server with the streams that an index reads.
type store struct {
	t  *testing.T
	js jetstream.JetStream
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{t, natstest.JetStream(t)}
	s.create(ledger.CallsStream, ledger.CallSubjects.Below())
	s.create(deadletter.Stream, deadletter.Subjects.Below())
	return s
}

func (s *store) create(name, subjects string) {
	s.t.Helper()
	if _, err := s.js.CreateStream(s.t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subjects}, AllowDirect: true}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) put(m *nats.Msg) {
	s.t.Helper()
	if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) call(job string, call int, outcome string, final bool) {
	s.t.Helper()
	c := ledger.Record{API: "pay", Key: "k", Job: job, Stream: "WEIR_pay_0", Seq: 1, Call: call, Accepted: began, Ended: time.Now(), Status: 200, Outcome: outcome, Final: final}
	m := c.Message()
	m.Header = nil // needs no id of its own here
	s.put(m)
}

func (s *store) letter(job string, reason deadletter.Reason) {
	s.t.Helper()
	l := deadletter.Letter{API: "pay", Key: "k", JobID: job, Reason: reason, At: began, Header: nats.Header{}}
	m := l.Message()
	m.Header.Del("Nats-Msg-Id")
	m.Header.Set("Weir-Job-Id", job)
	s.put(m)
}

// run runs an index until the test ends.
func (s *store) run(bytes int) *Index {
	s.t.Helper()
	x := New(Options{JetStream: s.js, Bytes: bytes, SumBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := await.Receive(s.t, "the end of the index", ended); err != nil {
			s.t.Error(err)
		}
	})
	return x
}

// await asks until the answer is the wanted one.
func (s *store) await(what string, x *Index, q Question, wanted func(p *Page) bool) Page {
	s.t.Helper()
	var page Page
	await.Until(s.t, what, func() bool {
		var err error
		if page, err = x.List(s.t.Context(), q); err != nil {
			s.t.Fatal(err)
		}
		return wanted(&page)
	})
	return page
}

func ids(p *Page) (ids []string) {
	for i := range p.Jobs {
		ids = append(ids, p.Jobs[i].Job)
	}
	return ids
}

// TestIndexIsBuiltFromTheStreams checks that messages from before the index began are read in the background, that
// later ones are listed at once, and that deleted letters are no longer listed.
func TestIndexIsBuiltFromTheStreams(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 700 {
		s.call(fmt.Sprint("old-", i), 1, ledger.Done, true)
	}
	s.call("twice", 1, ledger.PushedBack, false)
	s.call("twice", 2, ledger.Done, true)
	s.call("died", 1, "rejected", true)
	s.letter("died", deadletter.Rejected)
	s.letter("refused", deadletter.Overflow)
	x := s.run(1 << 30)
	all := Question{Done: true, Dead: true, Limit: 1000}
	page := s.await("the whole index", x, all, func(p *Page) bool { return !p.Building })
	if len(page.Jobs) != 703 || !page.Since.IsZero() || page.Missing != 0 || !slices.Equal(ids(&page)[:3], []string{"refused", "died", "twice"}) {
		t.Errorf("%d jobs since %s, %d missing, the first are %v", len(page.Jobs), page.Since, page.Missing, ids(&page)[:3])
	}
	s.call("new", 1, ledger.Done, true)
	if page, err := x.List(t.Context(), all); err != nil || page.Jobs[0].Job != "new" {
		t.Errorf("a new job is not listed at once: %v, %v", ids(&page)[:1], err)
	}
	traces := x.Traces(t.Context(), "twice")
	if traces.Doubtful || !traces.InCalls.All() || !traces.InLetters.All() || !slices.Equal(traces.Calls, []uint64{702, 701}) || len(traces.Letters) != 0 {
		t.Errorf("the traces of a job with two calls are %+v", traces)
	}
	if traces = x.Traces(t.Context(), "died"); len(traces.Calls) != 1 || !slices.Equal(traces.Letters, []uint64{1}) {
		t.Errorf("the traces of a dead job are %+v", traces)
	}
	if traces = x.Traces(t.Context(), "never"); traces.Doubtful || !traces.InCalls.All() || !traces.InLetters.All() || len(traces.Calls) != 0 {
		t.Errorf("the traces of no job are %+v", traces)
	}
	letters, err := s.js.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := letters.DeleteMsg(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if page, err := x.List(t.Context(), Question{Dead: true, Limit: 10}); err != nil || !slices.Equal(ids(&page), []string{"refused"}) {
		t.Errorf("after a letter was deleted, the dead jobs are %v, %v", ids(&page), err)
	}
}

// TestIndexDoesNotTrustDamage checks that an index is built anew if its stream was made again, and that lost records
// are counted.
func TestIndexDoesNotTrustDamage(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 20 {
		s.call(fmt.Sprint("old-", i), 1, ledger.Done, true)
	}
	calls, err := s.js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := calls.DeleteMsg(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	x := s.run(1 << 30)
	q := Question{Done: true, Limit: 100}
	page := s.await("the whole index", x, q, func(p *Page) bool { return !p.Building })
	if page.Missing != 1 || len(page.Jobs) != 19 {
		t.Errorf("%d jobs, %d missing", len(page.Jobs), page.Missing)
	}
	if traces := x.Traces(t.Context(), "old-6"); !traces.Doubtful {
		t.Errorf("with a lost record the index claims to be whole: %+v", traces)
	}
	if err := s.js.DeleteStream(t.Context(), ledger.CallsStream); err != nil {
		t.Fatal(err)
	}
	s.create(ledger.CallsStream, ledger.CallSubjects.Below())
	s.call("another", 1, ledger.Done, true)
	s.await("the index of the new stream", x, q, func(p *Page) bool { return slices.Equal(ids(p), []string{"another"}) })
}

// laggingInfo answers questions about streams like a server that lacks their last messages, so long as lags says so.
type laggingInfo struct {
	jetstream.JetStream
	lags func() bool
}

func (l laggingInfo) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := l.JetStream.Stream(ctx, name)
	if err == nil && l.lags() {
		s.CachedInfo().State.LastSeq /= 2
	}
	return s, err
}

// TestIndexBesideAServerThatLags checks that the index keeps what it has if the server that answers lacks the stream's
// last messages for a moment. An answer that comes meanwhile does not claim to be complete. The index is built anew if
// the messages stay away.
func TestIndexBesideAServerThatLags(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 20 {
		s.call(fmt.Sprint("job-", i), 1, ledger.Done, true)
	}
	x := New(Options{JetStream: s.js, Bytes: 1 << 30, SumBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	calls := x.ledger()
	if _, err := x.begin(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	if err := x.fill(t.Context(), calls); err != nil { // from here on only questions and checks look at the stream
		t.Fatal(err)
	}
	asked := 0
	x.opts.JetStream = laggingInfo{s.js, func() bool { asked++; return asked <= 3 }}
	if err := x.check(t.Context(), calls); err != nil || asked != 4 {
		t.Errorf("after %d questions: %v", asked, err)
	}
	asked = 0
	q := Question{Done: true, Limit: 100}
	if page, err := x.List(t.Context(), q); err != nil || page.Behind > 0 || len(page.Jobs) != 20 {
		t.Errorf("after the server has caught up: %d jobs, %d behind, %v", len(page.Jobs), page.Behind, err)
	}
	x.opts.JetStream = laggingInfo{s.js, func() bool { return true }}
	if page, err := x.List(t.Context(), q); err != nil || page.Behind == 0 || len(page.Jobs) != 20 {
		t.Errorf("while the server lags: %d jobs, %d behind, %v", len(page.Jobs), page.Behind, err)
	}
	if err := x.check(t.Context(), calls); !errors.Is(err, errOther) || x.calls.last != 0 {
		t.Errorf("after the end has stayed away: %v, and the shelf ends at %d", err, x.calls.last)
	}
}

// TestIndexUnderLoad checks that a question does not mistake the stream for another one because it grows during the
// question.
func TestIndexUnderLoad(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.call("first", 1, ledger.Done, true)
	x := s.run(1 << 30)
	q := Question{Done: true, Limit: 10}
	s.await("the whole index", x, q, func(p *Page) bool { return !p.Building })
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			s.call("next", 1, ledger.Done, true)
		}
	}()
	for range 100 {
		page, err := x.List(t.Context(), q)
		if err != nil || page.Building {
			t.Errorf("the index is built anew: %+v, %v", page, err)
			break
		}
	}
	stop()
	await.Receive(t, "the end of the load", stopped)
}

// TestForgottenIsNotLost checks that entries that an index forgets while it reads older records do not count as lost.
func TestForgottenIsNotLost(t *testing.T) {
	t.Parallel()
	for what, forget := range map[string]func(s *shelf){
		"no room":       func(s *shelf) { s.forget() },
		"stream's head": func(s *shelf) { s.forget(); s.whole, s.full = true, false },
	} {
		x := filled(t, 0, 0)
		const n = 3 * perBlock
		x.calls = shelf{begun: true, first: n + 1, last: n}
		calls := &source{shelf: &x.calls, whole: true}
		for i := n - 1; i >= perBlock/2; i-- {
			if !x.addOlder(calls, doneJob(i)) {
				t.Fatal("an older record does not fit")
			}
		}
		forget(&x.calls)
		if x.addOlder(calls, doneJob(perBlock/2-1)) || x.calls.missing != 0 {
			t.Errorf("%s: %d records are missing", what, x.calls.missing)
		}
	}
}

// TestLateLetterIsForgotten checks that an index does not list a letter that was deleted after it was read and before
// it was added. The index is built anew if its stream has more deleted letters than the server lists.
func TestLateLetterIsForgotten(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 3 {
		s.letter(fmt.Sprint("letter-", i), deadletter.Overflow)
	}
	letters, err := s.js.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	x := New(Options{JetStream: s.js, Bytes: 1 << 30, SumBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	x.letters = shelf{begun: true, created: letters.CachedInfo().Created, first: 4, last: 3}
	dead := &source{name: deadletter.Stream, shelf: &x.letters}
	for seq := uint64(3); seq > 1; seq-- { // letter 2 is deleted before it is added
		if seq == 2 {
			if err := letters.DeleteMsg(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			if err := x.forgetDeleted(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		i := deadJob(int(seq - 1)) //nolint:gosec // small
		x.addOlder(dead, i)
	}
	page, err := x.List(t.Context(), Question{Dead: true, Limit: 10})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].Letter() != 3 {
		t.Errorf("the dead jobs are %+v, %v", page.Jobs, err)
	}
	many := x.standing
	many.Gone += 2_000_000
	if x.forgetDeletedLocked(many); x.letters.begun {
		t.Error("with letters that are deleted and not listed, the index goes on")
	}
}

// TestUnreadableEndIsDoubtful checks that an index that cannot ask for the end of its stream does not claim to be
// whole.
func TestUnreadableEndIsDoubtful(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	x := New(Options{JetStream: s.js, Bytes: 1 << 30, SumBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	x.calls, x.letters = shelf{begun: true, whole: true}, shelf{begun: true, whole: true}
	s.js.Conn().Close()
	if traces := x.Traces(t.Context(), "any"); !traces.Doubtful {
		t.Errorf("it claims %+v", traces)
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
