package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket/lease"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a feed.
const (
	eventsStream = deadletter.EventsStream
	eventsAhead  = 1000            // events that are read ahead
	eventPosts   = 2               // posts of events to a host: several destinations may share one
	endsAhead    = 64              // headers of ends that are read ahead; they may be large
	mostUnderWay = 32              // ends of one feed that are read and neither accepted nor given up
	readsAtOnce  = 4               // ends of all callbacks
	countEvery   = 5 * time.Second // counts what waits behind those under way
)

// sender posts the messages of one feed to its receiver.
type sender struct {
	*Senders
	series
	client *http.Client
	log    *slog.Logger

	key     string // begins the keys of its lease and of its position
	stream  string
	subject string // that it reads; "": all
	bare    bool   // it reads without bodies
	ahead   int    // messages that are read ahead
	most    int    // loads under way
	resumes bool   // its feed can resume single messages
	// receiver returns where posts go now, nil if that is not configured any more. It changes with the configuration.
	receiver func() *config.Receiver
	feed     func(*sending) feed
}

// feed makes loads of the messages that a sender reads. One goroutine uses it.
type feed interface {
	// collect takes the next message.
	collect(msg jetstream.Msg, meta *jetstream.MsgMetadata) collected
	// complete returns the load that was being collected, nil for none.
	complete() load
	// resume returns the load of a message that was under way when an earlier sender ended.
	resume(open underWay) load
	// lost tells that messages were removed from the stream before they were read.
	lost(messages uint64)
}

// collected is what became of a message.
type collected struct {
	held   bool          // it is to be posted
	begins bool          // with it a load begins
	within time.Duration // the load that begins is complete after this time; 0: with this message
	full   load          // the load that is complete with this message, nil for none
}

// load is what is posted, or given up, before the position goes beyond it.
type load interface {
	// deliver posts it, first at a time, until the receiver has accepted it or it is given up. It fails if the sending
	// must end.
	deliver(ctx context.Context, at time.Time) error
}

// configured reports whether the feed is configured.
func (s *sender) configured() bool { return s.receiver() != nil }

func (s *sender) count(outcome string, n int) { s.outcomes.WithLabelValues(outcome).Add(float64(n)) }

// sendOn sends under a lease that others use too, until ctx ends, or the feed is not configured; then it deletes the
// position. While the lease is in doubt it waits: the lease is renewed, or ctx ends.
func (s *sender) sendOn(ctx context.Context, valid func() bool) {
	for ctx.Err() == nil {
		wait := lookEvery
		switch configured := s.configured(); {
		case !valid():
		case configured:
			if err := s.send(ctx, valid); !errors.Is(err, errNotConfigured) && ctx.Err() == nil {
				s.log.Warn("cannot post; trying again", "err", err)
				wait = leaseRetry
			}
		default:
			err := s.forgetFeed(ctx)
			if err == nil {
				return
			}
			s.log.Warn("cannot delete the position of a callback that was removed; trying again", "err", err)
		}
		stream.Sleep(ctx, wait)
	}
}

// Reasons to end a sending.
var (
	errNotConfigured = errors.New("the receiver is not configured any more")
	errInDoubt       = errors.New("the lease was not renewed in time, so another replica may post")
)

// send posts from the position on until ctx ends, the lease is in doubt, or it fails with errNotConfigured.
func (s *sender) send(ctx context.Context, valid func() bool) error {
	run := &sending{sender: s, valid: valid}
	defer run.tell(time.Time{})
	source, err := run.begin(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for s.configured() && stream.Sleep(ctx, lookEvery) {
		}
		cancel(errNotConfigured)
	})
	read := make(chan jetstream.Msg) // without a buffer: nothing is read while all loads are under way
	cfg := jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: run.taken + 1, HeadersOnly: s.bare,
	}
	if s.subject != "" {
		cfg.FilterSubjects = []string{s.subject}
	}
	running.Go(func() {
		cancel(stream.FollowClosely(ctx, source, cfg, s.ahead, func(msg jetstream.Msg) error {
			select {
			case read <- msg:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
	})
	defer running.Wait()
	defer cancel(nil)
	err = run.postAll(ctx, read)
	if errors.Is(err, lease.ErrLeaseLost) || errors.Is(err, errInDoubt) {
		return err
	}
	return errors.Join(err, run.note(ctx))
}

// sending is a sender at work under its lease. All but deliver belongs to one goroutine.
type sending struct {
	*sender
	progress
	backlog

	valid    func() bool // whether the lease is held
	resuming []underWay  // messages that an earlier sender left under way
	running  int         // loads under way
	ended    chan delivered
	noted    string // the entry that is stored
	revision uint64 // of the position, as this sender noted or read it
	begun    uint64 // see entry
	counted  time.Time

	full   atomic.Bool // all loads are under way: a further message waits for the end of one
	pace   pace
	health health
	drops  drops
}

// delivered is the end of a load.
type delivered struct {
	first uint64 // the first message of the load
	err   error  // why the sending must end
}

// postAll collects the messages that are read into loads, and posts each load. It returns after all posts have ended.
func (s *sending) postAll(ctx context.Context, read <-chan jetstream.Msg) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var posting sync.WaitGroup
	s.ended = make(chan delivered, s.most+len(s.resuming))
	err := s.collectAll(ctx, read, func(first uint64, full load) {
		s.running++
		at := s.pace.reserve(time.Now(), s.receiver())
		posting.Go(func() { s.ended <- delivered{first, full.deliver(ctx, at)} })
	})
	cancel(err)
	posting.Wait() // for posts that are answered soon, too
	for ; s.running > 0; s.running-- {
		if d := <-s.ended; d.err == nil {
			s.end(d.first)
		}
	}
	s.drops.tell(s.log)
	return err
}

func (s *sending) collectAll(ctx context.Context, read <-chan jetstream.Msg, start func(first uint64, full load)) error {
	feed, closing := s.feed(s), time.NewTimer(0)
	closing.Stop()
	defer closing.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	if s.sure > 0 {
		if err := s.recount(ctx, feed); err != nil {
			return err
		}
	}
	for _, open := range s.resuming {
		start(open.Seq, feed.resume(open))
	}
	for {
		reading, closes := read, closing.C
		full := s.running >= s.most
		if s.full.Store(full); full {
			reading, closes = nil, nil
		}
		var complete load
		select {
		case msg := <-reading:
			meta, err := msg.Metadata()
			if err != nil {
				return fmt.Errorf("%s: %w", s.stream, err)
			}
			if meta.Sequence.Stream <= s.gone { // it was delivered before it was removed
				s.progress.take(meta.Sequence.Stream, meta.Timestamp, collected{})
				break
			}
			c := feed.collect(msg, meta)
			s.progress.take(meta.Sequence.Stream, meta.Timestamp, c)
			if lost := s.backlog.take(meta.Sequence.Stream, meta.NumPending); lost > 0 {
				feed.lost(lost)
			}
			if complete = c.full; c.begins && complete == nil {
				closing.Reset(c.within)
			}
		case <-closes:
			complete = feed.complete()
		case d := <-s.ended:
			s.running--
			if d.err != nil {
				return d.err
			}
			if s.end(d.first); s.most == 1 { // so a kill posts one load again, and no more
				if err := s.note(ctx); err != nil {
					return err
				}
			}
		case now := <-tick.C:
			if err := s.look(ctx, feed, now); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if complete != nil {
			start(s.newest(), complete)
		}
		s.tell(time.Now())
	}
}

// look notes what has changed. While messages wait to be read, it counts them: what waits may be removed unread, and
// then no further message says that nothing waits.
func (s *sending) look(ctx context.Context, feed feed, now time.Time) error {
	s.drops.tell(s.log)
	if s.behind() == 0 {
		s.health.forget()
	}
	if (s.running >= s.most || s.unread > 0) && now.Sub(s.counted) >= countEvery {
		s.counted = now
		if err := s.recount(ctx, feed); err != nil {
			s.log.Warn("cannot count the messages that wait to be posted", "err", err)
		}
	}
	return s.note(ctx)
}

// recount counts the messages that wait to be read, and tells the feed how many of those counted before are gone.
func (s *sending) recount(ctx context.Context, feed feed) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	source, err := s.JetStream.Stream(ctx, s.stream)
	if err != nil {
		return err
	}
	state := source.CachedInfo().State
	if s.subject == "" { // every message is one of the feed's
		s.estimated(state.LastSeq - min(state.LastSeq, max(s.taken, state.FirstSeq-min(1, state.FirstSeq))))
		return nil
	}
	from := func(seq uint64) (uint64, error) {
		return stream.Count(ctx, source, jetstream.ConsumerConfig{
			Description: "weir: a count of ends to be posted", FilterSubject: s.subject,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq,
		})
	}
	beyond, checks := uint64(0), s.sure > 0 && state.FirstSeq > s.taken+1
	if checks { // first, so that what comes meanwhile hides a loss rather than makes one up
		if beyond, err = from(s.upTo + 1); err != nil {
			return err
		}
	}
	n, err := from(s.taken + 1)
	if err != nil {
		return err
	}
	if checks {
		if lost := s.missing(n - min(n, beyond)); lost > 0 {
			feed.lost(lost)
			s.gone = min(s.upTo, state.FirstSeq-1)
		}
	}
	if source, err = s.JetStream.Stream(ctx, s.stream); err != nil { // after the count, so that it covers no more
		return err
	}
	s.backlog.counted(n, source.CachedInfo().State.LastSeq)
	return nil
}

// tell sets the gauges of how far the feed is behind. A zero time says that this replica does not send.
func (s *sending) tell(now time.Time) {
	behind, age := s.behind(), time.Duration(0)
	if now.IsZero() {
		behind = 0
	} else if at := s.oldestAt(); !at.IsZero() {
		age = max(0, now.Sub(at))
	}
	s.series.behind.Set(float64(behind))
	if s.oldest != nil {
		s.oldest.Set(age.Seconds())
	}
}

// behind returns how many messages are kept and not posted yet.
func (s *sending) behind() uint64 { return s.waiting() + s.unread }
