package jobindex

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/ops/spend"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Options of an Index. All are required.
type Options struct {
	JetStream jetstream.JetStream
	Bytes     int // bound of the shelves' memory
	SumBytes  int // bound of the sums' memory
	Log       *slog.Logger
}

// Index holds which jobs have ended and what calls cost. It is safe for concurrent use.
type Index struct {
	opts  Options
	seed  maphash.Seed
	looks map[*shelf]chan struct{} // a value makes keepOnce compare the shelf with its stream

	answering sync.Mutex // held while Spending makes an account; always locked before mu

	mu       sync.RWMutex // guards the fields below
	calls    shelf        // of the ledger
	sums     *spend.Sums  // of the ledger
	summed   uint64       // the sequence of the oldest record in sums; if sums is empty, that of the next record
	letters  shelf
	events   shelf
	names    []string // of apis and outcomes; entries have indexes into it
	places   map[string]int
	grown    chan struct{}       // closed when a shelf grows; nil if no question waits
	standing deadletter.Standing // state of the letters when deleted letters were last dropped
	late     bool                // older letters were added since deleted letters were last dropped, and may be deleted already
}

// New returns an empty index. Run fills it.
func New(o Options) *Index {
	x := &Index{opts: o, seed: maphash.MakeSeed(), places: map[string]int{}, sums: spend.NewSums(o.SumBytes)}
	x.looks = map[*shelf]chan struct{}{&x.calls: make(chan struct{}, 1), &x.letters: make(chan struct{}, 1), &x.events: make(chan struct{}, 1)}
	return x
}

// Bounds of building the index.
const (
	again      = 2 * time.Second // the time before a stream that cannot be read, or does not exist, is tried again
	checkEvery = 30 * time.Second
	perTurn    = 256 // entries read in the background before a pause
	mostNames  = 1 << 15
)

// Run builds the index and keeps it up to date. It blocks until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { x.keep(ctx, x.ledger()); return nil })
	group.Go(func() error { x.keep(ctx, x.dead()); return nil })
	group.Go(func() error { x.keep(ctx, x.eventSource()); return nil })
	return group.Wait()
}

// source is the stream that a shelf is built from.
type source struct {
	name  string
	shelf *shelf
	whole bool // only the server deletes messages, oldest first, so a gap elsewhere is a loss
	// on calls add with all messages after a sequence, including new ones, until ctx ends.
	on func(ctx context.Context, after uint64, add func(item) error) error
	// back calls add with all messages before a sequence, newest first.
	back func(ctx context.Context, before uint64, add func(item) error) error
}

// item is one message of a source.
type item struct {
	seq           uint64
	stored        time.Time
	ok            bool // whether the message can be read
	api, key, job string
	accepted      time.Time
	started       time.Time // of the call; zero: unknown
	status, calls int
	outcome       string // "": the message does not end a job
	jobless       bool   // the message is about no job, and gets no entry
	uncalled      bool   // the message is a record that is not of a call of its own
	record        *ledger.Record
}

func (x *Index) ledger() *source {
	of := func(add func(item) error) ledger.Take {
		return func(seq uint64, stored time.Time, c *ledger.Record) error { return add(ofRecord(seq, stored, c)) }
	}
	return &source{
		name: ledger.CallsStream, shelf: &x.calls, whole: true,
		on: func(ctx context.Context, after uint64, add func(item) error) error {
			return ledger.RecordsOn(ctx, x.opts.JetStream, after, of(add))
		},
		back: func(ctx context.Context, before uint64, add func(item) error) error {
			return ledger.RecordsBack(ctx, x.opts.JetStream, before, of(add))
		},
	}
}

// ofRecord returns a record as an item. Only the final record of a done job ends a job here, because every other end
// has a letter.
func ofRecord(seq uint64, stored time.Time, c *ledger.Record) item {
	i := item{seq: seq, stored: stored}
	if c == nil {
		return i
	}
	i.ok, i.api, i.key, i.job, i.accepted, i.started, i.status, i.calls, i.record = true, c.API, c.Key, c.Job, c.Accepted, c.Started, c.Status, c.Call, c
	i.uncalled = !IsCall(c)
	if c.Final && (c.Outcome == ledger.Done || c.Outcome == ledger.Reused || c.Inquiry == string(httpcall.Processed)) {
		i.outcome = ledger.Done
	}
	return i
}

func (x *Index) dead() *source {
	of := func(k *deadletter.Kept) item {
		return item{
			seq: k.Seq, stored: k.Stored, ok: true, api: k.API, key: k.Key, job: k.JobID, accepted: k.Accepted, status: k.Status,
			calls: k.Attempts, outcome: string(k.Reason),
		}
	}
	return &source{
		name: deadletter.Stream, shelf: &x.letters,
		on: func(ctx context.Context, after uint64, add func(item) error) error {
			b, err := deadletter.OpenBrowser(ctx, x.opts.JetStream)
			if err != nil {
				return err
			}
			return b.FollowAfter(ctx, after, func(k deadletter.Kept) error { return add(of(&k)) })
		},
		back: func(ctx context.Context, before uint64, add func(item) error) error {
			_, err := deadletter.NewestLetters(ctx, x.opts.JetStream, deadletter.Filter{Before: before}, 0, func(k deadletter.Kept) error { return add(of(&k)) })
			return err
		},
	}
}

func (x *Index) eventSource() *source {
	of := func(e deadletter.EventPlace) item {
		return item{seq: e.Seq, stored: e.Stored, ok: true, job: e.Job, jobless: e.Job == ""}
	}
	return &source{
		name: deadletter.EventsStream, shelf: &x.events,
		on: func(ctx context.Context, after uint64, add func(item) error) error {
			return deadletter.EventsAfter(ctx, x.opts.JetStream, after, func(e deadletter.EventPlace) error { return add(of(e)) })
		},
		back: func(ctx context.Context, before uint64, add func(item) error) error {
			return deadletter.EventsBefore(ctx, x.opts.JetStream, before, func(e deadletter.EventPlace) error { return add(of(e)) })
		},
	}
}

// keep builds a shelf and keeps it up to date until ctx ends. It builds the shelf anew if its stream was replaced.
func (x *Index) keep(ctx context.Context, s *source) {
	for ctx.Err() == nil {
		err := x.keepOnce(ctx, s)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errOther):
			x.opts.Log.Warn("the index of jobs is built anew: its stream is another one, or has lost its end", "stream", s.name)
			continue
		case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
			x.opts.Log.Warn("cannot read a stream for the index of jobs; trying again", "stream", s.name, "err", err)
		}
		stream.Sleep(ctx, again)
	}
}

// errOther means that a stream is not the one that its shelf was built from, or has lost its end.
var errOther = errors.New("the stream is another one")

func (x *Index) keepOnce(ctx context.Context, s *source) error {
	last, err := x.begin(ctx, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group errgroup.Group
	follow := func(part func() error) {
		group.Go(func() error {
			err := part()
			if err != nil {
				cancel(err)
			}
			return err
		})
	}
	follow(func() error { return s.on(ctx, last, func(i item) error { return x.addNewer(s, &i) }) })
	follow(func() error { return x.fill(ctx, s) })
	follow(func() error {
		tick := time.NewTicker(checkEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-x.looks[s.shelf]:
			case <-ctx.Done():
				return nil
			}
			if err := x.check(ctx, s); err != nil {
				return err
			}
		}
	})
	_ = group.Wait()
	return context.Cause(ctx)
}

// begin returns the last sequence of a shelf. If the shelf was not built from the present stream, or if the stream has
// removed all messages of the shelf, begin first empties the shelf. An emptied shelf begins at the stream's end.
func (x *Index) begin(ctx context.Context, s *source) (last uint64, err error) {
	info, had, err := x.infoOf(ctx, s.shelf, s.name)
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.tellLocked()
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		x.emptyLocked(s.shelf, shelf{absent: true}, time.Time{})
		return 0, err
	case err != nil:
		return 0, err
	}
	if !s.shelf.isOf(info, had) || info.State.FirstSeq > s.shelf.last+1 {
		x.emptyLocked(s.shelf, shelf{begun: true, created: info.Created, first: info.State.LastSeq + 1, last: info.State.LastSeq}, info.TimeStamp)
	}
	return s.shelf.last, nil
}

// check compares a shelf with its stream, and drops blocks whose messages the stream has removed. If the shelf was
// built from another stream, check empties it and fails with errOther.
func (x *Index) check(ctx context.Context, s *source) error {
	info, had, err := x.infoOf(ctx, s.shelf, s.name)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !s.shelf.isOf(info, had) {
		x.emptyLocked(s.shelf, shelf{}, time.Time{})
		return errOther
	}
	x.trimLocked(s.shelf, info)
	for s.shelf.endsBefore(info.State.FirstSeq) {
		s.shelf.forget()
		s.shelf.whole, s.shelf.full = true, false
	}
	return nil
}

// fill reads the messages from before the shelf began. It stops when the shelf is whole or full, and the sums are
// complete.
func (x *Index) fill(ctx context.Context, s *source) error {
	x.mu.RLock()
	before, wanted := x.wantedLocked(s.shelf)
	x.mu.RUnlock()
	if !wanted {
		return nil
	}
	read, begun := 0, time.Now()
	err := s.back(ctx, before, func(i item) error {
		if !x.addOlder(s, &i) {
			return stream.ErrEnough
		}
		if read++; read%perTurn == 0 { // pauses for as long as it read, so reading takes at most half of the time
			x.tell()
			if !stream.Sleep(ctx, time.Since(begun)) {
				return context.Cause(ctx)
			}
			begun = time.Now()
		}
		return nil
	})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.tellLocked()
	s.shelf.whole = s.shelf.begun && !s.shelf.full
	if s.shelf == &x.calls && s.shelf.begun {
		x.sums.Complete()
	}
	return nil
}

// wantedLocked returns the sequence before which messages must still be read. wanted is false if no such messages must
// be read.
func (x *Index) wantedLocked(s *shelf) (before uint64, wanted bool) {
	if s.begun && !s.whole && !s.full {
		before, wanted = s.first, true
	}
	if s == &x.calls && s.begun && !x.sums.Whole() {
		before, wanted = max(before, x.summed), true
	}
	return before, wanted
}

func (x *Index) addNewer(s *source, i *item) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !s.shelf.begun || i.seq <= s.shelf.last {
		return nil
	}
	missing := 0
	if s.whole && i.seq > s.shelf.last+1 {
		missing = int(i.seq - s.shelf.last - 1) //nolint:gosec // a gap in a stream
	}
	s.shelf.missing += missing
	s.shelf.last = i.seq
	x.addLocked(s.shelf, &s.shelf.newer, i)
	if s.shelf == &x.calls {
		x.sumLocked(i, missing)
	}
	x.tellLocked()
	return nil
}

// addOlder adds a message that is older than all in the shelf, or in the sums. It returns false if neither needs older
// messages.
func (x *Index) addOlder(s *source, i *item) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.shelf == &x.calls && s.shelf.begun && !x.sums.Whole() && i.seq < x.summed {
		x.sumLocked(i, int(x.summed-i.seq-1)) //nolint:gosec // a gap in a stream
		x.summed = i.seq
		x.sums.Reached(i.stored)
	}
	if s.shelf.begun && !s.shelf.full && !s.shelf.whole && i.seq < s.shelf.first {
		if s.whole && i.seq+1 < s.shelf.first {
			s.shelf.missing += int(s.shelf.first - i.seq - 1) //nolint:gosec // a gap in a stream
		}
		s.shelf.first, s.shelf.since = i.seq, i.stored.UnixNano()
		x.addLocked(s.shelf, &s.shelf.older, i)
	}
	_, wanted := x.wantedLocked(s.shelf)
	return wanted
}

// sumLocked adds a record to the sums. It also counts the missing records beside it.
func (x *Index) sumLocked(i *item, missing int) {
	if !i.ok {
		missing++
	}
	if missing > 0 {
		x.sums.Missing(missing, i.stored)
	}
	if i.record != nil {
		x.sums.Add(i.record)
	}
}

// emptyLocked replaces a shelf by the shelf by, which has no entries. At the time end, the stream had no message after
// by.last.
func (x *Index) emptyLocked(s *shelf, by shelf, end time.Time) {
	*s = by
	if s == &x.calls {
		x.sums.Begin(end)
		x.summed = by.first
	}
}

// trimLocked removes from the sums the calls whose records the ledger may have removed.
func (x *Index) trimLocked(s *shelf, info *jetstream.StreamInfo) {
	if s != &x.calls || !s.begun || !s.created.Equal(info.Created) {
		return
	}
	extent := ledger.ExtentIn(info)
	if x.sums.Trim(extent.Begins); extent.First >= x.summed {
		x.sums.Complete()
	}
}

func (x *Index) addLocked(s *shelf, end *[]*block, i *item) {
	if !i.ok {
		s.missing++
		return
	}
	if i.jobless {
		return
	}
	x.late = x.late || s == &x.letters && i.seq <= x.standing.Last
	of := x.keyHash(i.api, i.key)
	e := entry{
		hash: maphash.String(x.seed, i.job), of: uint32(of), ran: ranFor(i), uncalled: i.uncalled, seq: i.seq, stored: i.stored.UnixNano(), status: uint16(clamp(i.status, math.MaxUint16)), calls: uint16(clamp(i.calls, math.MaxUint16)), //nolint:gosec // clamped
	}
	if i.outcome != "" {
		e.listable, e.api, e.outcome = true, uint16(x.placeLocked(i.api)), uint16(x.placeLocked(i.outcome)) //nolint:gosec // bounded by mostNames
		if took := i.stored.Sub(i.accepted).Milliseconds(); !i.accepted.IsZero() {
			e.took = uint32(clamp(int(took), math.MaxUint32-1)) + 1 //nolint:gosec // clamped
		}
	}
	s.add(end, e, of, i.job, i.key)
	for x.calls.bytes+x.letters.bytes+x.events.bytes > x.opts.Bytes && x.forgetOldestLocked() {
	}
}

// keyHash returns the hash of an api and a key.
func (x *Index) keyHash(api, key string) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	_, _ = h.WriteString(api) // never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(key)
	return h.Sum64()
}

// ranFor returns the value of entry.ran for a message.
func ranFor(i *item) int32 {
	ran := i.stored.UnixNano()/1000 - i.started.UnixMicro()
	if i.started.IsZero() || ran <= unknownRun || ran > math.MaxInt32 {
		return unknownRun
	}
	return int32(ran)
}

// forgetOldestLocked drops the block that is the oldest of all shelves. It returns false if it may drop no block.
func (x *Index) forgetOldestLocked() bool {
	var oldest *shelf
	var ended int64
	for _, s := range []*shelf{&x.calls, &x.letters, &x.events} {
		if at, some := s.oldest(); some && (oldest == nil || at < ended) {
			oldest, ended = s, at
		}
	}
	if oldest == nil {
		return false
	}
	oldest.forget()
	return true
}

// placeLocked returns the index in names of an api's name or an outcome. If the name is not there yet, placeLocked adds
// it.
func (x *Index) placeLocked(name string) int {
	at, known := x.places[name]
	if !known {
		if len(x.names) >= mostNames { // cannot happen: the names come from the configuration
			return x.placeLocked(x.names[0])
		}
		at = len(x.names)
		x.names, x.places[name] = append(x.names, name), at
	}
	return at
}

func (x *Index) tell() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tellLocked()
}

func (x *Index) tellLocked() {
	if x.grown != nil {
		close(x.grown)
		x.grown = nil
	}
}

func clamp(n, most int) int { return min(max(n, 0), most) }

// endsBefore reports whether all messages of the oldest block are before first. If there is only one block, it returns
// false.
func (s *shelf) endsBefore(first uint64) bool {
	if len(s.newer)+len(s.older) < 2 {
		return false
	}
	if n := len(s.older); n > 0 {
		return s.older[n-1].entries[0].seq < first
	}
	return slices.MaxFunc(s.newer[0].entries, func(a, b entry) int { return int(int64(a.seq) - int64(b.seq)) }).seq < first //nolint:gosec // close to each other
}
