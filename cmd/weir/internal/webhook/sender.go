package webhook

import (
	"context"
	"encoding/json"
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

// Keys of weir_control that hold the lease and the position.
const (
	leaseKey    = "webhook.lease"
	positionKey = "webhook.position"
)

// How long things are waited for.
const (
	lookEvery  = time.Second     // checks whether a webhook is configured
	leaseRetry = 5 * time.Second // for replicas that do not send
	storeWait  = 10 * time.Second
	firstWait  = time.Second // after a failure; doubled after each further one
	longestTry = 5 * time.Minute
	noteEvery  = time.Second // of events that are not posted
	refusedMax = 5           // tries of an event that the receiver refuses
)

// Options of a Sender. All are required.
type Options struct {
	JetStream jetstream.JetStream
	Control   jetstream.KeyValue
	// Configured returns the webhook in force, nil for none. It is called often.
	Configured func() *config.Webhook
	Instance   string
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Sender posts events while it holds the lease.
type Sender struct {
	Options
	client  *http.Client
	metrics metrics
}

type metrics struct {
	events *prometheus.CounterVec
	failed prometheus.Counter
	behind prometheus.Gauge
}

// The outcomes of an event.
const (
	sent    = "sent"
	refused = "refused" // by the receiver, again and again
	dropped = "dropped" // by the stream, before it was sent
)

// New returns a sender.
func New(o Options) *Sender {
	o.Log = o.Log.With("component", "webhook")
	s := &Sender{Options: o, client: newClient(), metrics: metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_webhook_events_total", Help: "Events for the webhook, by what became of them.",
		}, []string{"outcome"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_webhook_failures_total", Help: "Posts to the webhook that were not answered with 2xx.",
		}),
		behind: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_webhook_behind", Help: "Events that are kept and not posted yet; 0 on a replica that does not send.",
		}),
	}}
	for _, outcome := range []string{sent, refused, dropped} {
		s.metrics.events.WithLabelValues(outcome)
	}
	o.Registerer.MustRegister(s.metrics.events, s.metrics.failed, s.metrics.behind)
	return s
}

// Run posts events until ctx ends. It never fails: it waits while the receiver or the store is unavailable.
func (s *Sender) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := lookEvery
		if s.Configured() != nil {
			var held *lease.HeldError
			if err := s.lead(ctx); errors.As(err, &held) {
				wait = leaseRetry
			} else if err != nil && ctx.Err() == nil {
				s.Log.Warn("cannot post events; trying again", "err", err)
				wait = leaseRetry
			}
		}
		stream.Sleep(ctx, wait)
	}
	return nil
}

// lead takes the lease and sends while it is held and a webhook is configured.
func (s *Sender) lead(ctx context.Context) error {
	l, err := lease.AcquireLease(ctx, s.Control, leaseKey, s.Instance)
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
	s.metrics.behind.Set(0)
	return errors.Join(err, <-kept)
}

// errNotConfigured ends a sending whose webhook was taken out of the configuration.
var errNotConfigured = errors.New("no webhook is configured any more")

// send posts from the position on until ctx ends, or the webhook is gone.
func (s *Sender) send(ctx context.Context, l *lease.Lease) error {
	position, err := s.position(ctx)
	if err != nil {
		return err
	}
	events, err := s.JetStream.Stream(ctx, deadletter.EventsStream)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for s.Configured() != nil && stream.Sleep(ctx, lookEvery) {
		}
		cancel(errNotConfigured)
	})
	defer watch.Wait()
	defer cancel(nil)
	var noted time.Time
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: position + 1}
	err = stream.Follow(ctx, events, cfg, func(msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("events: %w", err)
		}
		s.metrics.behind.Set(float64(meta.NumPending + 1))
		if lost := meta.Sequence.Stream - position - 1; lost > 0 {
			s.metrics.events.WithLabelValues(dropped).Add(float64(lost))
			s.Log.Warn("events were dropped before they could be posted: the webhook was down for longer than they are kept", "events", lost)
		}
		posted, err := s.deliver(ctx, l, msg, meta)
		if err != nil {
			return err
		}
		if !l.Valid() {
			return lease.ErrLeaseLost
		}
		position = meta.Sequence.Stream
		s.metrics.behind.Set(float64(meta.NumPending))
		if !posted && time.Since(noted) < noteEvery {
			return nil // its kind need not be delivered
		}
		noted = time.Now()
		return s.note(ctx, position)
	})
	if errors.Is(err, errNotConfigured) {
		return s.forget(ctx)
	}
	return err
}

// deliver posts an event until the receiver has accepted it, or until it is given up. It skips kinds that the webhook
// does not want.
func (s *Sender) deliver(ctx context.Context, l *lease.Lease, msg jetstream.Msg, meta *jetstream.MsgMetadata) (posted bool, err error) {
	var event struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	if json.Unmarshal(msg.Data(), &event) != nil || event.ID == "" {
		return false, nil // not weir's message: no event is lost
	}
	kind := deadletter.EventType(strings.TrimSuffix(strings.TrimPrefix(event.Type, "weir."), ".v1"))
	wait, refusals, told := firstWait, 0, false
	for try := 1; ; try++ {
		to := s.Configured()
		switch {
		case to == nil:
			return false, errNotConfigured
		case !slices.Contains(to.Events, kind):
			return false, nil
		case !l.Valid():
			return false, lease.ErrLeaseLost
		}
		no := post(ctx, s.client, to, messageID(event.ID), msg.Data())
		if no == nil {
			s.metrics.events.WithLabelValues(sent).Inc()
			if told {
				s.Log.Info("the webhook accepts events again", "tries", try)
			}
			stream.Sleep(ctx, to.Rate.Per/time.Duration(to.Rate.Count))
			return true, nil
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		s.metrics.failed.Inc()
		if no.refuses() {
			if refusals++; refusals >= refusedMax {
				s.metrics.events.WithLabelValues(refused).Inc()
				s.Log.Warn("the webhook refused an event; it is not posted again", "event", event.ID, "type", event.Type, "err", no)
				return true, nil
			}
		}
		if !told {
			s.Log.Warn("the webhook does not accept events; trying again until they are too old", "err", no)
			told = true
		}
		if s.gone(ctx, meta.Sequence.Stream) {
			s.metrics.events.WithLabelValues(dropped).Inc()
			s.Log.Warn("an event was dropped before the webhook took it", "event", event.ID, "type", event.Type)
			return true, nil
		}
		if s.rest(ctx, to, max(wait, no.retryAfter)); s.Configured() != to {
			wait = firstWait
			continue
		}
		wait = min(2*wait, longestTry)
	}
}

// rest waits until the next try of a post. If the configuration changes meanwhile, the next try is at once: the cause
// may be mended.
func (s *Sender) rest(ctx context.Context, to *config.Webhook, d time.Duration) {
	for end := time.Now().Add(d); s.Configured() == to && time.Now().Before(end); {
		if !stream.Sleep(ctx, min(lookEvery, time.Until(end))) {
			return
		}
	}
}

// gone reports whether the stream no longer keeps an event, and counts the later events that are missing too.
func (s *Sender) gone(ctx context.Context, seq uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	events, err := s.JetStream.Stream(ctx, deadletter.EventsStream)
	if err != nil {
		return false // unknown
	}
	state := events.CachedInfo().State
	s.metrics.behind.Set(float64(state.LastSeq + 1 - min(seq, state.LastSeq+1)))
	return state.FirstSeq > seq
}

// position returns the last event that was sent. If none is noted it is the newest one: a webhook receives only events
// from its configuration on.
func (s *Sender) position(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	events, err := s.JetStream.Stream(ctx, deadletter.EventsStream)
	if err != nil {
		return 0, fmt.Errorf("events: %w", err)
	}
	last := events.CachedInfo().State.LastSeq
	entry, err := s.Control.Get(ctx, positionKey)
	if err == nil {
		noted, parsed := strconv.ParseUint(string(entry.Value()), 10, 64)
		if parsed == nil && noted <= last {
			return noted, nil
		} // a restored store has reused the numbers
	} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, fmt.Errorf("the webhook's position: %w", err)
	}
	return last, s.note(ctx, last)
}

func (s *Sender) note(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if _, err := s.Control.Put(ctx, positionKey, strconv.AppendUint(nil, seq, 10)); err != nil {
		return fmt.Errorf("the webhook's position: %w", err)
	}
	return nil
}

// forget deletes the position: a webhook that is configured again does not receive what happened meanwhile.
func (s *Sender) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	if err := s.Control.Delete(ctx, positionKey); err != nil {
		return fmt.Errorf("the webhook's position: %w", err)
	}
	return nil
}
