package limitstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/grammar"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// levelWatch reads the levels of one api's shared limits, for metrics and operators. It sends an event when a budget
// reaches a threshold.
type levelWatch struct {
	api     string
	read    func(context.Context) ([]bucket.Level, error)
	heard   func(error)               // called after each reading with its error, nil if it succeeded
	unknown func() string             // returns why the use of limits is unknown
	gap     func(limit string) string // returns what is missing in a limit's count
	news    *news                     // nil only in tests of levels
	price   func() int64
	used    func([]bucket.Level) // called with the levels read, for forecasts
	letters *deadletter.Writer
	control jetstream.KeyValue
	log     *slog.Logger
	clock   func() bucket.Micros
	wake    chan struct{}
	asked   chan chan<- struct{} // requests to read at once; each receives a value afterwards
	ended   chan struct{}        // closed when run returns

	told   map[string]budgetTold // by limit; nil until the earlier events are read
	excess map[string]excessSeen // by limit

	mu     sync.Mutex // guards latest
	latest []bucket.Level
}

const (
	levelsEvery = time.Second
	levelsWait  = 2 * time.Second
)

// budgetTold is the highest threshold whose event was sent for one window of a budget of a given amount.
type budgetTold struct {
	Start   bucket.Micros `json:"start"`
	Count   int64         `json:"count"`
	Percent int           `json:"percent"`
}

// BudgetData is the data of a budget event.
type BudgetData struct {
	Limit   string `json:"limit"`
	Percent int    `json:"percent"` // the threshold reached: 50, 80, or 100 if less is left than a usual call costs
	// Counted is how much of the budget is used. It includes calls in flight, and after a crash the calls that may have
	// been in flight.
	Counted     string           `json:"counted"`
	Budget      string           `json:"budget"`
	From        time.Time        `json:"from"`
	Until       time.Time        `json:"until"`
	OnExhausted bucket.Exhausted `json:"on_exhausted"`
	Shadow      bool             `json:"shadow,omitempty"` // the budget only watches
}

func budgetKey(api string) string { return "budget." + api }

func newLevelWatch(o *Options, api string, read func(context.Context) ([]bucket.Level, error)) *levelWatch {
	watch := &levelWatch{
		api: api, read: read, heard: func(error) {}, unknown: func() string { return "" }, gap: func(string) string { return "" }, price: func() int64 { return o.Caller.Price(api) },
		used:    func(levels []bucket.Level) { o.Caller.HeardOfLevels(api, levels) },
		letters: o.Letters, control: o.Control, log: o.Log.With("component", "limits", "api", api), clock: func() bucket.Micros { return o.Clock.Now() + o.Clock.Ahead() },
		wake: make(chan struct{}, 1), asked: make(chan chan<- struct{}), ended: make(chan struct{}),
	}
	if o.Redis != nil {
		watch.heard = func(err error) { o.Caller.HeardOfLimiter(api, err) }
	}
	o.Levels.add(watch)
	return watch
}

// run reads the levels until ctx ends.
func (w *levelWatch) run(ctx context.Context) error {
	defer close(w.ended)
	tick := time.NewTicker(levelsEvery)
	defer tick.Stop()
	w.look(ctx)
	for {
		var looked chan<- struct{}
		select {
		case <-tick.C:
		case looked = <-w.asked:
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		w.look(ctx)
		if looked != nil {
			looked <- struct{}{}
		}
	}
}

// now requests a reading at once. It does not block.
func (w *levelWatch) now() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// refresh requests a reading and waits until it is done, or ctx ends.
func (w *levelWatch) refresh(ctx context.Context) {
	looked := make(chan struct{}, 1)
	select {
	case w.asked <- looked:
	case <-w.ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-looked:
	case <-w.ended:
	case <-ctx.Done():
	}
}

func (w *levelWatch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, levelsWait)
	defer cancel()
	levels, err := w.read(ctx)
	if ctx.Err() == nil || err == nil {
		w.heard(err)
	}
	w.mu.Lock()
	w.latest = levels
	w.mu.Unlock()
	if err != nil {
		return
	}
	w.used(levels)
	w.tellExcess(levels, time.Now())
	if err := w.tellSpent(ctx, levels); err != nil && ctx.Err() == nil {
		w.log.Warn("could not report how much of a budget is spent; trying again", "err", err)
	}
}

// levels returns the latest levels, nil if they could not be read.
func (w *levelWatch) levels() []bucket.Level {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// tellSpent sends an event for every threshold that a budget has newly reached in this window. The event's id names the
// window and the threshold, so the event is stored once even if two replicas send it, or one sends it again after a
// crash.
func (w *levelWatch) tellSpent(ctx context.Context, levels []bucket.Level) error {
	if !slices.ContainsFunc(levels, func(l bucket.Level) bool { return l.Limit.Budget != nil }) {
		return nil
	}
	if w.told == nil {
		if err := w.recall(ctx); err != nil {
			return err
		}
	}
	changed := false
	for i := range levels {
		l := &levels[i]
		if l.Limit.Budget == nil || l.Unknown || l.Bound {
			continue
		}
		start, end := l.Window(w.clock())
		told := w.told[l.Limit.Name]
		if told.Start != start || told.Count != l.Count {
			told = budgetTold{Start: start, Count: l.Count}
		}
		for _, percent := range []int{50, 80, 100} { // the event of each is sent once in a window
			reached := l.Percent() >= percent || percent == 100 && l.Count-l.Used < w.price()
			if !reached || percent <= told.Percent {
				continue
			}
			if err := w.tell(ctx, l, percent, start, end); err != nil {
				return err
			}
			told.Percent, changed = percent, true
		}
		w.told[l.Limit.Name] = told
	}
	if !changed {
		return nil
	}
	return w.keep(ctx)
}

func (w *levelWatch) tell(ctx context.Context, l *bucket.Level, percent int, start, end bucket.Micros) error {
	w.log.Info("a budget is being spent", "limit", l.Limit.Name, "percent", percent, "counted", grammar.Money(l.Used).String(),
		"budget", grammar.Money(l.Count).String(), "until", end.Time())
	stored := make(chan error, 1)
	w.letters.Send(deadletter.Event{
		Type: deadletter.BudgetEvent, API: w.api, ID: fmt.Sprintf("budget.%s.%d.%d.%d", w.idOf(&l.Limit), l.Count, start, percent),
		Data: BudgetData{
			Limit: l.Limit.Name, Percent: percent, Counted: grammar.Money(l.Used).String(), Budget: grammar.Money(l.Count).String(),
			From: start.Time(), Until: end.Time(), OnExhausted: l.Limit.Budget.OnExhausted, Shadow: l.Limit.Shadow,
		},
	}, func(err error) { stored <- err })
	select {
	case err := <-stored:
		return err
	case <-ctx.Done():
		return fmt.Errorf("event %s: %w", deadletter.BudgetEvent, context.Cause(ctx))
	}
}

// idOf returns the name of a limit in the ids of events. An account's limit has the same name for all apis of the
// account, so they send one event.
func (w *levelWatch) idOf(l *bucket.Limit) string {
	if l.Account != "" {
		return l.Name
	}
	return w.api + "." + l.Name
}

// recall reads which events were sent before this process started.
func (w *levelWatch) recall(ctx context.Context) error {
	told := map[string]budgetTold{}
	entry, err := w.control.Get(ctx, budgetKey(w.api))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return fmt.Errorf("what was told of budgets: %w", err)
	default:
		if err := json.Unmarshal(entry.Value(), &told); err != nil {
			return fmt.Errorf("what was told of budgets (%s in %s) cannot be read: %w", budgetKey(w.api), w.control.Bucket(), err)
		}
	}
	w.told = told
	return nil
}

func (w *levelWatch) keep(ctx context.Context) error {
	data, err := json.Marshal(w.told)
	if err != nil {
		panic("what JSON cannot carry was told of budgets: " + err.Error())
	}
	if _, err := w.control.Put(ctx, budgetKey(w.api), data); err != nil {
		return fmt.Errorf("what was told of budgets: %w", err)
	}
	return nil
}

// Levels holds the watches of all apis, for metrics and operators. It is safe for concurrent use.
type Levels struct {
	mu      sync.Mutex // guards watches
	watches []*levelWatch
}

var (
	usedDesc = prometheus.NewDesc("weir_limit_used_ratio", "How much of a quota or budget shared by all keys is used in its present window, 0 to 1.",
		[]string{"api", "limit"}, nil)
	excessDesc = prometheus.NewDesc("weir_limit_vendor_excess_units",
		"Units of a limit that its vendor counts at present and weir does not, by what answers say is left.",
		[]string{"api", "limit"}, nil)
	shadowDesc = prometheus.NewDesc("weir_shadow_holds_total", "Calls that a limit with shadow: true would have held; one that asks for its slot again counts again.",
		[]string{"api", "limit"}, nil)
)

func (b *Levels) add(w *levelWatch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watches = append(b.watches, w)
}

// drop removes a watch that never ran.
func (b *Levels) drop(w *levelWatch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watches = slices.DeleteFunc(b.watches, func(other *levelWatch) bool { return other == w })
}

// refreshWithin bounds Refresh, so that a store that does not answer does not delay the rest of an answer.
const refreshWithin = 500 * time.Millisecond

// Refresh reads all levels anew, and blocks for half a second at most. Each level then counts every call that was in
// the ledger before Refresh.
func (b *Levels) Refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshWithin)
	defer cancel()
	b.mu.Lock()
	watches := slices.Clone(b.watches)
	b.mu.Unlock()
	var asking sync.WaitGroup
	for _, w := range watches {
		asking.Go(func() { w.refresh(ctx) })
	}
	asking.Wait()
}

// Of returns the latest levels of an api.
func (b *Levels) Of(api string) []bucket.Level {
	b.mu.Lock()
	watches := slices.Clone(b.watches)
	b.mu.Unlock()
	for _, w := range watches {
		if w.api == api {
			return w.levels()
		}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (b *Levels) Describe(ch chan<- *prometheus.Desc) {
	ch <- usedDesc
	ch <- excessDesc
	ch <- shadowDesc
}

// Collect implements prometheus.Collector. A limit's series is absent while the limit cannot be read, or while the use
// before the start is being added up.
func (b *Levels) Collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	watches := slices.Clone(b.watches)
	b.mu.Unlock()
	for _, w := range watches {
		for _, l := range w.levels() {
			if l.Count > 0 && !l.Bound {
				ch <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(l.Used)/float64(l.Count), w.api, l.Limit.Name)
			}
			if l.Excess > 0 {
				more := float64(l.Excess)
				ch <- prometheus.MustNewConstMetric(excessDesc, prometheus.GaugeValue, more, w.api, l.Limit.Name)
			}
			if l.Limit.Shadow {
				ch <- prometheus.MustNewConstMetric(shadowDesc, prometheus.CounterValue, float64(l.Held), w.api, l.Limit.Name)
			}
		}
	}
}
