package jobindex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	if _, err := s.js.CreateStream(s.t.Context(), jetstream.StreamConfig{
		Name:        name,
		Subjects:    []string{subjects},
		AllowDirect: true,
	}); err != nil {
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
	c := ledger.Record{
		API:      "pay",
		Key:      "k",
		Job:      job,
		Stream:   "WEIR_pay_0",
		Seq:      1,
		Call:     call,
		Accepted: began,
		Ended:    time.Now(),
		Status:   200,
		Outcome:  outcome,
		Final:    final,
	}
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
	if len(page.Jobs) != 703 || !page.Since.IsZero() || page.Missing != 0 ||
		!slices.Equal(ids(&page)[:3], []string{"refused", "died", "twice"}) {
		t.Errorf("%d jobs since %s, %d missing, the first are %v", len(page.Jobs), page.Since, page.Missing, ids(&page)[:3])
	}
	s.call("new", 1, ledger.Done, true)
	if page, err := x.List(t.Context(), all); err != nil || page.Jobs[0].Job != "new" {
		t.Errorf("a new job is not listed at once: %v, %v", ids(&page)[:1], err)
	}
	traces := x.Traces(t.Context(), "twice")
	if traces.Doubtful || !traces.InCalls.All() || !traces.InLetters.All() ||
		!slices.Equal(traces.Calls, []uint64{702, 701}) || len(traces.Letters) != 0 {
		t.Errorf("the traces of a job with two calls are %+v", traces)
	}
	if traces = x.Traces(t.Context(), "died"); len(traces.Calls) != 1 || !slices.Equal(traces.Letters, []uint64{1}) {
		t.Errorf("the traces of a dead job are %+v", traces)
	}
	if traces = x.Traces(t.Context(), "never"); traces.Doubtful || !traces.InCalls.All() || !traces.InLetters.All() ||
		len(traces.Calls) != 0 {
		t.Errorf("the traces of no job are %+v", traces)
	}
	letters, err := s.js.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := letters.DeleteMsg(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if page, err := x.List(t.Context(), Question{
		Dead:  true,
		Limit: 10,
	}); err != nil || !slices.Equal(ids(&page), []string{"refused"}) {
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
