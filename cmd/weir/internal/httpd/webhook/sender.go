package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/bucket/lease"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// How long things are waited for.
const (
	lookEvery  = time.Second     // checks which destinations are configured
	leaseRetry = 5 * time.Second // for replicas that do not send
	storeWait  = 10 * time.Second
	firstWait  = time.Second // after a failure; doubled after each further one
	longestTry = 5 * time.Minute
	noteEvery  = time.Second // of events that are not posted
	refusedMax = 5           // tries of a post that the receiver refuses
)

// Options of Senders. All are required.
type Options struct {
	JetStream jetstream.JetStream
	Control   jetstream.KeyValue
	// Configured returns the destinations in force. It is called often.
	Configured func() []*config.Destination
	Instance   string
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Senders post events to each destination whose lease they hold.
type Senders struct {
	Options
	client  *http.Client
	metrics metrics
}

type metrics struct {
	events *prometheus.CounterVec
	failed *prometheus.CounterVec
	behind *prometheus.GaugeVec
}

// The outcomes of an event.
const (
	sent    = "sent"
	refused = "refused" // by the receiver, again and again
	dropped = "dropped" // by the stream, before it was sent
)

// New returns senders.
func New(o Options) *Senders {
	o.Log = o.Log.With("component", "webhook")
	s := &Senders{Options: o, client: newClient(), metrics: metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_webhook_events_total", Help: "Events for a destination, by what became of them.",
		}, []string{"destination", "outcome"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_webhook_failures_total", Help: "Posts to a destination that were not answered with 2xx.",
		}, []string{"destination"}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_webhook_behind", Help: "Events that are kept and not posted yet; 0 on a replica that does not send.",
		}, []string{"destination"}),
	}}
	o.Registerer.MustRegister(s.metrics.events, s.metrics.failed, s.metrics.behind)
	for _, d := range o.Configured() {
		s.sender(d.Name) // its series begin with the process
	}
	return s
}

// Run posts events until ctx ends. It never fails: it waits while a receiver or the store is unavailable.
func (s *Senders) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	sending, ended := map[string]bool{}, make(chan string)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	running.Go(func() {
		for err := s.forgetRemoved(ctx); err != nil && stream.Sleep(ctx, leaseRetry); err = s.forgetRemoved(ctx) {
			s.Log.Warn("cannot delete the positions of removed destinations; trying again", "err", err)
		}
	})
	for {
		for _, d := range s.Configured() {
			if sending[d.Name] {
				continue
			}
			sending[d.Name] = true
			running.Go(func() {
				s.sender(d.Name).run(ctx)
				select {
				case ended <- d.Name:
				case <-ctx.Done():
				}
			})
		}
		select {
		case name := <-ended:
			delete(sending, name)
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// sender posts events to one destination while it holds that one's lease.
type sender struct {
	*Senders
	name string
	log  *slog.Logger
}

func (s *Senders) sender(name string) *sender {
	for _, outcome := range []string{sent, refused, dropped} {
		s.metrics.events.WithLabelValues(name, outcome)
	}
	s.metrics.failed.WithLabelValues(name)
	s.metrics.behind.WithLabelValues(name)
	return &sender{Senders: s, name: name, log: s.Log.With("destination", name)}
}

// configured returns the destination in force, nil if there is none of this name any more.
func (s *sender) configured() *config.Destination {
	for _, d := range s.Configured() {
		if d.Name == s.name {
			return d
		}
	}
	return nil
}

func (s *sender) count(outcome string, events int) {
	s.metrics.events.WithLabelValues(s.name, outcome).Add(float64(events))
}

func (s *sender) behind(events uint64) {
	s.metrics.behind.WithLabelValues(s.name).Set(float64(events))
}

// leaseKey and positionKey return the keys of weir_control that hold the lease and the position.
func (s *sender) leaseKey() string    { return "notify." + s.name + ".lease" }
func (s *sender) positionKey() string { return "notify." + s.name + ".position" }

// run sends until ctx ends, or the destination is gone.
func (s *sender) run(ctx context.Context) {
	for ctx.Err() == nil && s.configured() != nil {
		wait := lookEvery
		var held *lease.HeldError
		if err := s.lead(ctx); errors.As(err, &held) {
			wait = leaseRetry
		} else if err != nil && ctx.Err() == nil {
			s.log.Warn("cannot post events; trying again", "err", err)
			wait = leaseRetry
		}
		for end := time.Now().Add(wait); s.configured() != nil && time.Now().Before(end) && stream.Sleep(ctx, lookEvery); {
		}
	}
}

// lead takes the lease and sends while it is held and the destination is configured.
func (s *sender) lead(ctx context.Context) error {
	l, err := lease.AcquireLease(ctx, s.Control, s.leaseKey(), s.Instance)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	kept := make(chan error, 1)
	go func() {
		err := l.Keep(ctx)
		cancel(err)
		kept <- err
	}()
	err = s.send(ctx, l)
	cancel(err)
	s.behind(0)
	return errors.Join(err, <-kept)
}

// errNotConfigured ends a sending whose destination was taken out of the configuration.
var errNotConfigured = errors.New("the destination is not configured any more")

// send posts from the position on until ctx ends, or the destination is gone.
func (s *sender) send(ctx context.Context, l *lease.Lease) error {
	position, err := s.position(ctx)
	if err != nil {
		return err
	}
	events, err := s.JetStream.Stream(ctx, deadletter.EventsStream)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for s.configured() != nil && stream.Sleep(ctx, lookEvery) {
		}
		cancel(errNotConfigured)
	})
	read := make(chan jetstream.Msg) // without a buffer: nothing is read while a post fails
	running.Go(func() {
		cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: position + 1}
		cancel(stream.Follow(ctx, events, cfg, func(msg jetstream.Msg) error {
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
	err = s.postAll(ctx, l, position, read)
	if errors.Is(err, errNotConfigured) {
		return s.forget(ctx)
	}
	return err
}

// postAll collects the events that are read into windows, and posts each window.
func (s *sender) postAll(ctx context.Context, l *lease.Lease, position uint64, read <-chan jetstream.Msg) error {
	open, pending, noted, closing := window{last: position}, uint64(0), time.Time{}, time.NewTimer(0)
	defer closing.Stop()
	closing.Stop()
	for {
		full := false
		select {
		case msg := <-read:
			to := s.configured()
			if to == nil {
				return errNotConfigured
			}
			began := open.empty()
			var err error
			if pending, err = s.collect(&open, to, msg); err != nil {
				return err
			}
			if began && !open.empty() && to.Group > 0 {
				closing.Reset(to.Group)
			}
			full = !open.empty() && to.Group == 0
			if open.empty() && time.Since(noted) >= noteEvery { // its kind need not be delivered
				noted = time.Now()
				if err := s.noteHeld(ctx, l, open.last); err != nil {
					return err
				}
			}
		case <-closing.C:
			full = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !full {
			continue
		}
		if err := s.post(ctx, l, open.groups, open.last); err != nil {
			return err
		}
		open = window{last: open.last}
		s.behind(pending)
		if err := s.noteHeld(ctx, l, open.last); err != nil {
			return err
		}
	}
}

// collect puts an event into the open window if the destination wants it. It returns how many later events are kept.
func (s *sender) collect(open *window, to *config.Destination, msg jetstream.Msg) (pending uint64, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return 0, fmt.Errorf("events: %w", err)
	}
	if lost := meta.Sequence.Stream - open.last - 1; lost > 0 {
		s.count(dropped, int(lost))
		s.log.Warn("events were dropped before they could be posted: the destination was down for longer than they are kept", "events", lost)
	}
	open.last = meta.Sequence.Stream
	if e, ok := readEvent(msg.Data()); ok && slices.Contains(to.Events, e.kind) {
		open.add(e)
	}
	s.behind(meta.NumPending + uint64(open.events))
	return meta.NumPending, nil
}

// noteHeld notes the position, unless the lease was lost.
func (s *sender) noteHeld(ctx context.Context, l *lease.Lease, position uint64) error {
	if !l.Valid() {
		return lease.ErrLeaseLost
	}
	return s.note(ctx, position)
}

// errOtherFormat ends the tries of a post whose destination wants another format since.
var errOtherFormat = errors.New("the destination's format was changed")

// post posts groups of events: all in one post if the format is a text, else each by itself. last is the newest event
// of their window.
func (s *sender) post(ctx context.Context, l *lease.Lease, groups []*group, last uint64) error {
	for len(groups) > 0 {
		to := s.configured()
		if to == nil {
			return errNotConfigured
		}
		n := 1
		if to.Format == config.SlackFormat {
			n = len(groups)
		}
		err := s.deliver(ctx, l, to.Format, groups[:n], last)
		switch {
		case errors.Is(err, errOtherFormat):
			continue
		case err != nil:
			return err
		}
		groups = groups[n:]
	}
	return nil
}

// deliver posts groups until the receiver has accepted them, or until they are given up.
func (s *sender) deliver(ctx context.Context, l *lease.Lease, format config.Format, groups []*group, last uint64) error {
	wait, refusals, told, events := firstWait, 0, false, 0
	for _, g := range groups {
		events += g.events
	}
	for try := 1; ; try++ {
		to := s.configured()
		switch {
		case to == nil:
			return errNotConfigured
		case to.Format != format:
			return errOtherFormat
		case !l.Valid():
			return lease.ErrLeaseLost
		}
		no := post(ctx, s.client, to, render(to, groups))
		if no == nil {
			s.count(sent, events)
			if told {
				s.log.Info("the destination accepts events again", "tries", try)
			}
			stream.Sleep(ctx, to.Rate.Per/time.Duration(to.Rate.Count))
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.metrics.failed.WithLabelValues(s.name).Inc()
		if no.refuses() {
			if refusals++; refusals >= refusedMax {
				s.count(refused, events)
				s.log.Warn("the destination refused events; they are not posted again", "event", groups[0].newest.id, "events", events, "err", no)
				return nil
			}
		}
		if !told {
			s.log.Warn("the destination does not accept events; trying again until they are too old", "err", no)
			told = true
		}
		if s.gone(ctx, last) {
			s.count(dropped, events)
			s.log.Warn("events were dropped before the destination accepted them", "event", groups[0].newest.id, "events", events)
			return nil
		}
		if s.rest(ctx, to, max(wait, no.retryAfter)); s.configured() != to {
			wait = firstWait
			continue
		}
		wait = min(2*wait, longestTry)
	}
}

// rest waits until the next try of a post. If the configuration changes meanwhile, it returns at once: the change may
// have fixed the cause.
func (s *sender) rest(ctx context.Context, to *config.Destination, d time.Duration) {
	for end := time.Now().Add(d); s.configured() == to && time.Now().Before(end); {
		if !stream.Sleep(ctx, min(lookEvery, time.Until(end))) {
			return
		}
	}
}

// gone reports whether the stream no longer keeps an event, and counts the later events that are missing too.
func (s *sender) gone(ctx context.Context, seq uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	events, err := s.JetStream.Stream(ctx, deadletter.EventsStream)
	if err != nil {
		return false // unknown
	}
	state := events.CachedInfo().State
	s.behind(state.LastSeq + 1 - min(seq, state.LastSeq+1))
	return state.FirstSeq > seq
}

// position returns the last event that was sent. If none is noted it is the newest one: a destination receives only
// events from its configuration on.
func (s *sender) position(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	events, err := s.JetStream.Stream(ctx, deadletter.EventsStream)
	if err != nil {
		return 0, fmt.Errorf("events: %w", err)
	}
	last := events.CachedInfo().State.LastSeq
	entry, err := s.Control.Get(ctx, s.positionKey())
	if err == nil {
		noted, parsed := strconv.ParseUint(string(entry.Value()), 10, 64)
		if parsed == nil && noted <= last {
			return noted, nil
		} // a restored store has reused the numbers
	} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, fmt.Errorf("the position of destination %s: %w", s.name, err)
	}
	return last, s.note(ctx, last)
}

func (s *sender) note(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if _, err := s.Control.Put(ctx, s.positionKey(), strconv.AppendUint(nil, seq, 10)); err != nil {
		return fmt.Errorf("the position of destination %s: %w", s.name, err)
	}
	return nil
}

// forget deletes the position: a destination that is configured again does not receive what happened meanwhile.
func (s *sender) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if err := s.Control.Delete(ctx, s.positionKey()); err != nil {
		return fmt.Errorf("the position of destination %s: %w", s.name, err)
	}
	return nil
}

// forgetRemoved deletes the positions of destinations that were removed from the configuration while no replica ran. It
// takes their leases: a replica may already follow a configuration that names them.
func (s *Senders) forgetRemoved(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	keys, err := s.Control.ListKeysFiltered(ctx, (&sender{name: "*"}).positionKey())
	if err != nil {
		return fmt.Errorf("positions of destinations: %w", err)
	}
	defer func() { _ = keys.Stop() }()
	for key := range keys.Keys() {
		removed := &sender{Senders: s, name: strings.TrimSuffix(strings.TrimPrefix(key, "notify."), ".position")}
		if removed.configured() != nil {
			continue
		}
		l, err := lease.AcquireLease(ctx, s.Control, removed.leaseKey(), s.Instance)
		if held := (*lease.HeldError)(nil); errors.As(err, &held) {
			continue // a replica sends to it
		} else if err != nil {
			return err
		}
		release, done := context.WithCancel(ctx)
		done()
		if err := errors.Join(removed.forget(ctx), l.Keep(release)); err != nil {
			return err
		}
	}
	return nil
}
