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
	eventPosts   = 2               // connections to one host for events; several destinations may share a host
	endsAhead    = 64              // headers of ends that are read ahead; they may be large
	mostUnderWay = 32              // ends of one feed that are read and are neither accepted nor given up
	readsAtOnce  = 4               // ends that all callbacks together read at a time
	countEvery   = 5 * time.Second // how often a sender counts the unread messages
)

// sender posts the messages of one feed to one receiver.
type sender struct {
	*Senders
	series
	client *http.Client
	log    *slog.Logger

	key     string // prefix of the keys of the sender's lease and position
	stream  string
	subject string // filter of the messages that the sender reads; "": all
	bare    bool   // whether the sender reads messages without their bodies
	ahead   int    // messages that are read ahead
	most    int    // loads under way at a time
	resumes bool   // whether the feed can resume single messages
	// receiver returns the receiver in force, nil if the receiver is no longer configured.
	receiver func() *config.Receiver
	feed     func(*sending) feed
}

// feed makes loads from the messages that a sender reads. Only one goroutine uses it.
type feed interface {
	// collect takes the next message.
	collect(msg jetstream.Msg, meta *jetstream.MsgMetadata) collected
	// complete ends the load that is being collected and returns it. It returns nil if no load is being collected.
	complete() load
	// resume returns the load for a message that an earlier sender left under way.
	resume(open underWay) load
	// lost reports that messages were removed from the stream before the sender read them.
	lost(messages uint64)
}

// collected is what collect did with a message.
type collected struct {
	held   bool          // the message must be posted
	begins bool          // the message begins a load
	within time.Duration // the time until the load that begins is complete; 0: it is complete now
	full   load          // the load that this message completes; nil if it completes none
}

// load is the unit of posting: the position passes a load only when it was accepted or given up.
type load interface {
	// deliver posts the load until the receiver accepts it or weir gives it up. The first try begins no earlier than at.
	// An error means that the sending must end.
	deliver(ctx context.Context, at time.Time) error
}

// configured reports whether the feed is configured.
func (s *sender) configured() bool { return s.receiver() != nil }

func (s *sender) count(outcome string, n int) { s.outcomes.WithLabelValues(outcome).Add(float64(n)) }

// sendOn sends, until ctx ends, under a lease that it shares with other senders. While valid reports false, it waits.
// If the feed is no longer configured, it deletes the position and returns.
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

// Reasons for a sending to end.
var (
	errNotConfigured = errors.New("the receiver is not configured any more")
	errInDoubt       = errors.New("the lease was not renewed in time, so another replica may post")
)

// send posts all messages after the stored position. It returns when ctx ends, when the lease is in doubt, or when an
// error occurs. errNotConfigured means that the receiver was removed.
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
	read := make(chan jetstream.Msg) // unbuffered: while all loads are under way, nothing is read
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

// sending is one run of a sender under its lease. Its fields and methods belong to one goroutine, except deliver and
// what deliver uses.
type sending struct {
	*sender
	progress
	backlog

	valid    func() bool // reports whether the lease is held
	resuming []underWay  // messages that an earlier sender left under way
	running  int         // loads under way
	ended    chan delivered
	noted    string // the position as stored, in JSON
	revision uint64 // of the stored position, as this sender wrote or read it
	begun    uint64 // see entry
	from     uint64 // see entry
	counted  time.Time

	full   atomic.Bool // all loads are under way, so a further message must wait until one of them ends
	pace   pace
	health health
	drops  drops
}

// delivered reports the end of a load's delivery.
type delivered struct {
	first uint64 // the first message of the load
	err   error  // not nil: the sending must end
}

// postAll gathers the messages from read into loads, and posts each load. It returns after all posts have ended.
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
	posting.Wait() // including posts whose answers are about to come
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
			// Such a message was delivered before it was removed from the stream. It is already counted as lost.
			if meta.Sequence.Stream <= s.gone {
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
			if s.end(d.first); s.most == 1 { // the position is stored now, so that a kill repeats one load at most
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

// look runs once a second. It logs drops, stores the position, and counts the messages that wait to be read. It must
// count them, because messages may be removed unread, and no later message might show that.
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

// recount counts the messages that wait to be read. It tells the feed how many of the messages counted before are gone.
func (s *sending) recount(ctx context.Context, feed feed) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	source, err := s.JetStream.Stream(ctx, s.stream)
	if err != nil {
		return err
	}
	state := source.CachedInfo().State
	if s.subject == "" { // the feed takes every message of the stream
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
	if checks { // counted first, so that messages that come meanwhile hide a loss and do not look like one
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
	// LastSeq is read after the count, so that no counted message is behind it: sure must be a lower bound.
	if source, err = s.JetStream.Stream(ctx, s.stream); err != nil {
		return err
	}
	s.backlog.counted(n, source.CachedInfo().State.LastSeq)
	return nil
}

// tell sets the metrics that say how far the feed is behind. A zero time means that this replica does not send.
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

// behind returns the number of messages that are stored and not posted yet.
func (s *sending) behind() uint64 { return s.waiting() + s.unread }
