package retell

import (
	"container/list"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket/stream"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// The bounds of a Teller.
const (
	mostWaiting = 4096   // duplicates that wait for an end, about 500 bytes each
	mostLooks   = 1024   // duplicates whose ends were not looked for yet
	lookers     = 4      // looks at the same time
	mostRead    = 20_000 // messages of a key that one look reads in each stream
)

const (
	lookWithin  = 30 * time.Second
	followRetry = 2 * time.Second // delay before a stream is followed again after a failure: it may not exist yet
	leeway      = time.Minute     // how far the clock of a stream's leader may be from this process's
	tellDropped = time.Minute     // between two log lines about dropped duplicates
)

// Duplicate is a job that was submitted again, and whose producer asked to get its end.
type Duplicate struct {
	API, Key, Job string
	ReplyTo       string
	// Stream and Seq are the job's place in its queue, as the receipt names it. Seq is 0 if it is unknown.
	Stream string
	Seq    uint64
}

// Options of a Teller. All but Notes are required.
type Options struct {
	JetStream jetstream.JetStream
	Reply     func(msg *nats.Msg) error // sends msg to its subject; must not block
	Notes     jetstream.KeyValue        // holds the notes of what waits; nil: a restart forgets it
	Log       *slog.Logger
}

// Teller reports ends to duplicates. It is safe for concurrent use.
type Teller struct {
	Options

	looks chan *waiting
	wake  chan struct{} // signals that a duplicate waits for an end

	mu      sync.Mutex
	order   list.List // of *waiting, the oldest first
	jobs    map[job][]*waiting
	stop    context.CancelFunc // ends follow; called when nothing waits
	dropped int
	toldAt  time.Time // when dropped duplicates were last logged
}

// job names the job whose end a duplicate waits for.
type job struct{ api, key, id string }

// waiting is a duplicate whose end was not reported yet.
type waiting struct {
	Duplicate
	since time.Time
	at    *list.Element // nil: its end was reported, or it was dropped
	noted atomic.Bool   // see Options.Notes
}

// New returns a Teller. Its Run does the work.
func New(o Options) *Teller {
	if o.JetStream == nil || o.Reply == nil || o.Log == nil {
		panic("retell: New without JetStream, Reply or Log")
	}
	o.Log = o.Log.With("component", "retell")
	return &Teller{Options: o, looks: make(chan *waiting, mostLooks), wake: make(chan struct{}, 1), jobs: map[job][]*waiting{}}
}

// Tell makes the Teller report the end of a duplicate's job to its ReplyTo: now if the job has ended, otherwise when it
// ends. It does not block. If the same duplicate comes again while it waits, the end is reported once.
func (t *Teller) Tell(d Duplicate) {
	w := t.register(d, time.Now())
	if w == nil {
		return
	}
	select {
	case t.looks <- w:
	default:
		t.mu.Lock()
		t.removeLocked(w)
		t.mu.Unlock()
		t.drop(1)
	}
}

// register adds a duplicate to those that wait. It returns nil if the same duplicate waits already.
func (t *Teller) register(d Duplicate, now time.Time) *waiting {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := job{d.API, d.Key, d.Job}
	for _, other := range t.jobs[of] {
		if other.Duplicate == d {
			return nil
		}
	}
	w := &waiting{Duplicate: d, since: now}
	w.at = t.order.PushBack(w)
	t.jobs[of] = append(t.jobs[of], w)
	return w
}

// removeLocked forgets a duplicate, and reports whether the duplicate was still waiting. Only the caller that gets true
// may report the end.
func (t *Teller) removeLocked(w *waiting) bool {
	if w.at == nil {
		return false
	}
	t.order.Remove(w.at)
	w.at = nil
	of, kept := job{w.API, w.Key, w.Job}, []*waiting(nil)
	for _, other := range t.jobs[of] {
		if other != w {
			kept = append(kept, other)
		}
	}
	if t.jobs[of] = kept; len(kept) == 0 {
		delete(t.jobs, of)
	}
	if t.order.Len() == 0 && t.stop != nil {
		t.stop()
	}
	return true
}

// drop counts duplicates whose ends will not be reported. It logs the count at most once per tellDropped.
func (t *Teller) drop(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped += n; t.dropped == 0 || time.Since(t.toldAt) < tellDropped {
		return
	}
	t.Log.Warn("too many resubmitted jobs wait for their ends, so some ends are not sent; producers find them in "+ledger.ResultsStream, "count", t.dropped)
	t.dropped, t.toldAt = 0, time.Now()
}

// Run looks for ends and follows the streams until ctx ends. Then it notes the duplicates that it has not looked for, so
// that they outlive a restart. No Tell may come after the end of ctx.
func (t *Teller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range lookers {
		group.Go(func() error {
			for ctx.Err() == nil {
				select {
				case w := <-t.looks:
					t.look(ctx, w)
				case <-ctx.Done():
				}
			}
			t.noteRest(ctx)
			return nil
		})
	}
	group.Go(func() error { return t.takeUpAll(ctx) })
	group.Go(func() error {
		for {
			select {
			case <-t.wake:
				t.follow(ctx)
			case <-ctx.Done():
				return nil
			}
		}
	})
	return group.Wait()
}

// look looks for the end of a duplicate's job and reports it. If the job has not ended, the duplicate waits. But if the
// job itself names the same reply subject, look forgets the duplicate. look blocks until the streams and the notes have
// answered.
func (t *Teller) look(ctx context.Context, w *waiting) {
	looking, cancel := context.WithTimeout(ctx, lookWithin)
	asked, err := t.isAskedAlready(looking, &w.Duplicate)
	var end *nats.Msg
	if err == nil && !asked {
		end, err = t.newestEnd(looking, &w.Duplicate)
	}
	cancel()
	switch {
	case err != nil && ctx.Err() == nil:
		t.Log.Warn("could not look up the end of a resubmitted job; it is sent if it is still to come",
			"api", w.API, "job_id", w.Job, "err", err)
	case asked:
		t.forget(w)
		return
	case end != nil:
		t.tell(w, end)
		return
	}
	keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait) // a stop must not lose the duplicate
	t.keep(keeping, w)
	cancel()
	t.await()
}

// await drops the oldest duplicates if more than mostWaiting wait, and makes Run follow the streams.
func (t *Teller) await() {
	t.mu.Lock()
	var dropped []*waiting
	for t.order.Len() > mostWaiting {
		oldest, _ := t.order.Front().Value.(*waiting)
		t.removeLocked(oldest)
		dropped = append(dropped, oldest)
	}
	t.mu.Unlock()
	for _, w := range dropped {
		t.takeNote(w)
	}
	t.drop(len(dropped))
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// tell sends an end to a duplicate, once.
func (t *Teller) tell(w *waiting, end *nats.Msg) {
	t.mu.Lock()
	waits := t.removeLocked(w)
	t.mu.Unlock()
	if !waits || !t.takeNote(w) {
		return
	}
	if err := t.Reply(&nats.Msg{Subject: w.ReplyTo, Header: end.Header, Data: end.Data}); err != nil {
		t.Log.Warn("could not send the end of a resubmitted job to its reply subject", "api", w.API, "job_id", w.Job, "err", err)
	}
}

// follow reads ends as they come, until no duplicate waits or ctx ends.
func (t *Teller) follow(ctx context.Context) {
	t.mu.Lock()
	if t.order.Len() == 0 {
		t.mu.Unlock()
		return
	}
	ctx, t.stop = context.WithCancel(ctx)
	oldest, _ := t.order.Front().Value.(*waiting)
	since := oldest.since.Add(-leeway)
	t.mu.Unlock()
	defer t.stop()
	var group errgroup.Group
	for name, take := range map[string]func(context.Context, jetstream.Msg) error{
		ledger.ResultsStream: t.takeResult, lettersStream: t.takeLetter,
	} {
		group.Go(func() error {
			for ctx.Err() == nil {
				t.followOne(ctx, name, since, take)
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// followOne follows one stream until ctx ends or the stream breaks.
func (t *Teller) followOne(ctx context.Context, name string, since time.Time, take func(context.Context, jetstream.Msg) error) {
	source, err := t.JetStream.Stream(ctx, name)
	if err == nil {
		from := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since, HeadersOnly: true}
		err = stream.Follow(ctx, source, from, func(msg jetstream.Msg) error { return take(ctx, msg) })
	}
	if ctx.Err() != nil {
		return
	}
	t.Log.Warn("cannot follow the ends of resubmitted jobs; trying again", "stream", name, "err", err)
	stream.Sleep(ctx, followRetry)
}
