package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"weir/bucket/lease"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// Intervals and timeouts.
const (
	lookEvery  = time.Second     // between two looks at the configuration
	leaseRetry = 5 * time.Second // between two tries to get a lease
	storeWait  = 10 * time.Second
)

// Options of Senders. All are required.
type Options struct {
	JetStream jetstream.JetStream
	Control   jetstream.KeyValue
	// Configured returns the configuration in force. Version returns the version of that configuration, or, for a
	// moment after a change, an earlier version. Configured is called often.
	Configured func() *config.Config
	Version    func() uint64
	Instance   string
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Senders posts events to each destination whose lease it holds. While it also holds the lease of all callbacks, it
// posts the ends of jobs to callbacks.
type Senders struct {
	Options
	client    *http.Client // for events
	callbacks *http.Client
	events    metrics
	ends      metrics
	lags      lags
	reads     chan struct{} // has a slot for each end that is being read, because bodies may be large
}

// Outcomes of an event or of a job's end that was to be posted.
const (
	sent    = "sent"
	refused = "refused" // the receiver refused it several times
	dropped = "dropped" // it was too old, or no longer in its stream
	removed = "removed" // only letters: it was redriven or purged before it was posted
)

// metrics are the metrics of all feeds of one kind. The labels identify a feed.
type metrics struct {
	outcomes *prometheus.CounterVec
	failed   *prometheus.CounterVec
	behind   *prometheus.GaugeVec
	oldest   *prometheus.GaugeVec // nil: this kind of feed has none
	all      []string             // all values of the label outcome
}

// series are the metrics of one feed.
type series struct {
	outcomes *prometheus.CounterVec
	failed   prometheus.Counter
	behind   prometheus.Gauge
	oldest   prometheus.Gauge // nil if this kind of feed has none
}

// of returns the metrics of one feed. From this call on they exist.
func (m *metrics) of(labels prometheus.Labels) series {
	s := series{outcomes: m.outcomes.MustCurryWith(labels), failed: m.failed.With(labels), behind: m.behind.With(labels)}
	if m.oldest != nil {
		s.oldest = m.oldest.With(labels)
	}
	for _, outcome := range m.all {
		s.outcomes.WithLabelValues(outcome)
	}
	return s
}

// New returns senders.
func New(o Options) *Senders {
	o.Log = o.Log.With("component", "webhook")
	s := &Senders{Options: o, client: newClient(eventPosts), callbacks: newClient(0), reads: make(chan struct{}, readsAtOnce), events: metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_webhook_events_total", Help: "Events for a destination, by what became of them.",
		}, []string{"destination", "outcome"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_webhook_failures_total", Help: "Posts to a destination that were not answered with 2xx.",
		}, []string{"destination"}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_webhook_behind", Help: "Events that are kept and not posted yet; 0 on a replica that does not send.",
		}, []string{"destination"}),
		all: []string{sent, refused, dropped},
	}, ends: metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_callback_ends_total", Help: "Ends of an api's jobs for its callback, by what became of them.",
		}, []string{"api", "end", "outcome"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_callback_failures_total", Help: "Posts to an api's callback that were not answered with 2xx.",
		}, []string{"api", "end"}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_callback_behind", Help: "Ends that are kept and not posted yet; 0 on a replica that does not send.",
		}, []string{"api", "end"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_callback_oldest_age_seconds",
			Help: "Age of the oldest end that is not posted yet; 0 if there is none, and on a replica that does not send.",
		}, []string{"api", "end"}),
		all: []string{sent, refused, dropped, removed},
	}}
	for _, m := range []*metrics{&s.events, &s.ends} {
		o.Registerer.MustRegister(m.outcomes, m.failed, m.behind)
	}
	o.Registerer.MustRegister(s.ends.oldest)
	for _, name := range s.destinations() {
		s.destination(name) // creates the series at the start of the process
	}
	for _, name := range s.feeds() {
		s.callback(name)
	}
	return s
}

// Run posts until ctx ends, and then returns nil. While a receiver or the store is unavailable it waits.
func (s *Senders) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		for err := s.forgetRemoved(ctx); err != nil && stream.Sleep(ctx, leaseRetry); err = s.forgetRemoved(ctx) {
			s.Log.Warn("cannot delete the positions of removed destinations; trying again", "err", err)
		}
	})
	running.Go(func() { s.lags.follow(ctx, s.Control, s.Log) })
	running.Go(func() { s.runCallbacks(ctx) })
	for ctx.Err() == nil {
		s.each(ctx, s.destinations, func(ctx context.Context, name string) {
			d := s.destination(name)
			s.underLease(ctx, d.key+leaseSuffix, d.log, d.configured, func(ctx context.Context, l *lease.Lease) error {
				err := d.send(ctx, l.Valid)
				if errors.Is(err, errNotConfigured) {
					_, err = d.forget(ctx)
				}
				return err
			})
		})
		stream.Sleep(ctx, lookEvery)
	}
	return nil
}

// runCallbacks posts ends of jobs while it holds the lease of all callbacks, until ctx ends.
func (s *Senders) runCallbacks(ctx context.Context) {
	tidy := true // callbacks may have been removed while no replica ran
	for ctx.Err() == nil {
		wanted := func() bool { return tidy || len(s.feeds()) > 0 }
		s.underLease(ctx, callbackPrefix+leaseSuffix, s.Log, wanted, func(ctx context.Context, l *lease.Lease) error {
			if err := s.forgetCallbacks(ctx); err != nil {
				return err
			}
			tidy = false
			s.each(ctx, s.feeds, func(ctx context.Context, name string) { s.callback(name).sendOn(ctx, l.Valid) })
			return context.Cause(ctx)
		})
		stream.Sleep(ctx, lookEvery)
	}
}

// each keeps run running once for each configured name. It returns when ctx has ended, or no name is configured any
// more, and all calls of run have returned.
func (s *Senders) each(ctx context.Context, configured func() []string, run func(ctx context.Context, name string)) {
	var running sync.WaitGroup
	defer running.Wait()
	sending, ended := map[string]bool{}, make(chan string)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		names := configured()
		for _, name := range names {
			if sending[name] {
				continue
			}
			sending[name] = true
			running.Go(func() {
				run(ctx, name)
				select {
				case ended <- name:
				case <-ctx.Done():
				}
			})
		}
		if len(names) == 0 && len(sending) == 0 {
			return
		}
		select {
		case name := <-ended:
			delete(sending, name)
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// underLease calls do each time that it gets the lease, until ctx ends or wanted reports false. The context that do
// gets ends if the lease is lost.
func (s *Senders) underLease(
	ctx context.Context, key string, log *slog.Logger, wanted func() bool, do func(context.Context, *lease.Lease) error,
) {
	for ctx.Err() == nil && wanted() {
		wait := lookEvery
		var held *lease.HeldError
		if err := s.lead(ctx, key, do); errors.As(err, &held) {
			wait = leaseRetry
		} else if err != nil && ctx.Err() == nil {
			log.Warn("cannot post; trying again", "err", err)
			wait = leaseRetry
		}
		for end := time.Now().Add(wait); wanted() && time.Now().Before(end) && stream.Sleep(ctx, lookEvery); {
		}
	}
}

// lead takes the lease and calls do. When do has returned, it gives the lease back.
func (s *Senders) lead(ctx context.Context, key string, do func(context.Context, *lease.Lease) error) error {
	l, err := lease.AcquireLease(ctx, s.JetStream.Conn(), s.Control, key, s.Instance)
	if err != nil {
		return err
	}
	// The lease is kept until do has stored its position.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	kept := make(chan error, 1)
	go func() {
		err := l.Keep(holding)
		cancel(err)
		kept <- err
	}()
	err = do(ctx, l)
	cancel(err)
	release()
	return errors.Join(err, <-kept)
}

// destinations returns the names of the configured destinations of events.
func (s *Senders) destinations() (names []string) {
	c := s.Configured()
	for i := range c.Notifications {
		names = append(names, c.Notifications[i].Name)
	}
	return names
}

// destination returns the sender of events to a destination.
func (s *Senders) destination(name string) *sender {
	d := &sender{
		Senders: s, series: s.events.of(prometheus.Labels{"destination": name}), client: s.client, log: s.Log.With("destination", name),
		key: destinationPrefix + name, stream: eventsStream, ahead: eventsAhead, most: 1,
	}
	d.receiver = func() *config.Receiver {
		if to := s.configuredDestination(name); to != nil {
			return &to.Receiver
		}
		return nil
	}
	d.feed = func(run *sending) feed { return &notices{sending: run, name: name} }
	return d
}

// configuredDestination returns the configured destination of that name, nil if there is none.
func (s *Senders) configuredDestination(name string) *config.Destination {
	all := s.Configured().Notifications
	if i := slices.IndexFunc(all, func(d config.Destination) bool { return d.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// feeds returns the names of the feeds of all configured callbacks: API.done and API.dead.
func (s *Senders) feeds() (names []string) {
	c := s.Configured()
	for i := range c.APIs {
		if c.APIs[i].Callback != nil {
			for _, kind := range endKinds() {
				names = append(names, c.APIs[i].Name+"."+string(kind))
			}
		}
	}
	return names
}

// callback returns the sender for a feed of ends.
func (s *Senders) callback(name string) *sender {
	api, kind := parseFeed(name)
	d := &sender{
		Senders: s, series: s.ends.of(prometheus.Labels{"api": api, "end": string(kind)}), client: s.callbacks,
		log: s.Log.With("api", api, "end", string(kind)), key: callbackPrefix + "." + name,
		stream: kind.stream(), subject: kind.subject(api), bare: true, ahead: endsAhead, most: mostUnderWay, resumes: true,
	}
	d.receiver = func() *config.Receiver {
		if to := s.configuredCallback(api); to != nil {
			return &to.Receiver
		}
		return nil
	}
	d.feed = func(run *sending) feed { return &ends{sending: run, api: api, kind: kind} }
	return d
}

// configuredCallback returns an api's configured callback, nil if it has none.
func (s *Senders) configuredCallback(api string) *config.Callback {
	if a, ok := s.Configured().API(api); ok {
		return a.Callback
	}
	return nil
}
