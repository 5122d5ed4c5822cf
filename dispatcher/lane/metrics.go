package lane

import (
	"slices"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the dispatcher's metrics. Their label is the api; a key is never a label.
type Metrics struct {
	finished *prometheus.CounterVec
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	wait     *prometheus.HistogramVec
	late     *prometheus.HistogramVec
	// PriorityWait is wait for jobs with priority high or low. Apis without such jobs have no series in it.
	PriorityWait *prometheus.HistogramVec
	Forfeited    *prometheus.CounterVec
	Restarts     *prometheus.CounterVec
	Damages      *prometheus.CounterVec
	Inquiries    *prometheus.CounterVec
	Polls        *prometheus.CounterVec
	Spend        *spending
	Unsettled    *prometheus.CounterVec
	Garbled      *prometheus.CounterVec
	Over         *prometheus.CounterVec
	Usage        *prometheus.CounterVec
	Packed       *prometheus.CounterVec
	Recovered    *prometheus.CounterVec
	up           prometheus.Gauge
}

// NewMetrics returns the metrics. Unless r is nil, it registers them and the collectors in more with r.
func NewMetrics(r prometheus.Registerer, more ...prometheus.Collector) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"api"})
	}
	m := &Metrics{
		finished: counter("weir_jobs_finished_total", "Jobs that ended, by outcome: done, reused, a dead letter's reason, duplicate, deleted or lost.", "api", "outcome"),
		calls:    counter("weir_calls_total", "Calls made, by outcome: done, submitted, retry, pushback, denied or a dead letter's reason.", "api", "outcome"),
		duration: histogram("weir_call_duration_seconds", "How long calls took.", callBounds()),
		wait: histogram("weir_queue_wait_seconds", "How long jobs waited from acceptance to their first call.",
			waitBounds()),
		late: histogram("weir_dispatch_late_seconds", "How much later than its slot a call started.",
			lateBounds()),
		PriorityWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_priority_wait_seconds", Help: "How long jobs with priority high or low waited from acceptance to their first call.", Buckets: waitBounds(),
		}, []string{"api", "priority"}),
		Forfeited: counter("weir_slots_forfeited_total", "Slots that were missed and given up.", "api"),
		Restarts: counter("weir_reader_restarts_total",
			"Readers of a partition that were set up anew because they broke or had gone quiet before messages that were there.", "api"),
		Damages: counter("weir_queue_damages_total",
			"Times that a queue's store was found to have lost messages without a name: messages that its server discarded, or marks of calls.", "api"),
		Inquiries: counter("weir_inquiries_total", "Times that an api was asked what became of a call, by what it said: processed, not_processed or unknown.",
			"api", "finding"),
		Polls: counter("weir_operation_polls_total",
			"Requests about operations that an api has begun, by what came of them: running, done, failed, unclear, no_answer, or cancel for a request to cancel one.",
			"api", "outcome"),
		Spend:     &spending{spent: map[string]ledger.Spending{}, saved: map[string]ledger.Savings{}},
		Over:      counter("weir_calls_over_reservation_total", "Calls that took more of a shared limit than they had reserved.", "api"),
		Usage:     counter("weir_usage_total", "Numbers of answers that the api's usage counts, such as tokens.", "api", "name"),
		Packed:    counter("weir_packed_jobs_total", "Jobs that went in the calls of an api whose calls may have several: divided by the calls, how full packs are.", "api"),
		Unsettled: counter("weir_calls_unsettled_total", "Calls whose answer was to tell what they used, and did not.", "api"),
		Garbled: counter("weir_left_unreadable_total",
			"Answers whose headers left or left_until of a limit could not be read.", "api", "limit"),
		Recovered: counter("weir_calls_recovered_total",
			"Calls that had an intent and no outcome when a process was found to have ended, by what was noted of them: not_begun, answered or unknown.", "api", "noted"),
		up: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_limiter_up", Help: "1 while slots can be asked for, 0 while calls hold because they cannot."}),
	}
	m.up.Set(1)
	if r != nil {
		r.MustRegister(m.finished, m.calls, m.duration, m.wait, m.PriorityWait, m.late, m.Forfeited, m.Restarts, m.Damages, m.Inquiries, m.Polls, m.Spend, m.Unsettled, m.Garbled, m.Over, m.Usage, m.Packed, m.Recovered, m.up)
		r.MustRegister(more...)
	}
	return m
}

// callBounds returns the bounds of the histogram of calls, in seconds. They are round numbers, because queries name
// them.
func callBounds() []float64 {
	return []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60}
}

func waitBounds() []float64 {
	return []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600}
}

func lateBounds() []float64 {
	return []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1}
}

// Observe records a measurement of a job. If the job's trace is recorded, the trace is the measurement's exemplar.
func Observe(o prometheus.Observer, seconds float64, j *Job) {
	if id := recordedTrace(j); id != "" {
		o.(prometheus.ExemplarObserver).ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": id})
		return
	}
	o.Observe(seconds)
}

// recordedTrace returns the id of a job's trace, "" if it is not recorded.
func recordedTrace(j *Job) string {
	if j.Traced.Recorded() {
		return j.Traced.TraceID()
	}
	if !j.Message.Trace.Sampled() {
		return ""
	}
	return j.Message.Trace.ID()
}

// LimiterLost sets the limiter's gauge. workers is how many workers cannot ask for slots.
func (m *Metrics) LimiterLost(workers int32) {
	if workers > 0 {
		m.up.Set(0)
		return
	}
	m.up.Set(1)
}

// APIMetrics are the series of one api that each call uses. They are looked up only once.
type APIMetrics struct {
	Duration, Wait, Late prometheus.Observer
	Finished, Calls      Outcomes
}

// Outcomes counts calls or jobs of one api by outcome.
type Outcomes struct {
	all      *prometheus.CounterVec
	api      string
	counters map[string]prometheus.Counter // never changed once made
}

func outcomesOf(all *prometheus.CounterVec, api string, names ...string) Outcomes {
	o := Outcomes{all, api, map[string]prometheus.Counter{}}
	for _, name := range names {
		o.counters[name] = all.WithLabelValues(api, name)
	}
	return o
}

// Count counts one call or job with this outcome.
func (o Outcomes) Count(name string) {
	c, ok := o.counters[name]
	if !ok {
		c = o.all.WithLabelValues(o.api, name)
	}
	c.Inc()
}

// of creates an api's series, so that they exist before anything has happened.
func (m *Metrics) of(api string) *APIMetrics {
	ends := []string{ledger.Done} // of calls, too
	for _, reason := range deadletter.Reasons() {
		ends = append(ends, string(reason))
	}
	m.Forfeited.WithLabelValues(api)
	m.Restarts.WithLabelValues(api)
	m.Damages.WithLabelValues(api)
	for _, finding := range []httpcall.Finding{httpcall.Processed, httpcall.NotProcessed, httpcall.StillUnknown} {
		m.Inquiries.WithLabelValues(api, string(finding))
	}
	for _, outcome := range []string{"running", "done", "failed", "unclear", "no_answer", "cancel"} {
		m.Polls.WithLabelValues(api, outcome)
	}
	m.Spend.announce(api)
	m.Unsettled.WithLabelValues(api)
	m.Over.WithLabelValues(api)
	for _, noted := range []string{"not_begun", "answered", "unknown"} {
		m.Recovered.WithLabelValues(api, noted)
	}
	return &APIMetrics{
		Duration: m.duration.WithLabelValues(api), Wait: m.wait.WithLabelValues(api), Late: m.late.WithLabelValues(api),
		Finished: outcomesOf(m.finished, api, slices.Concat(ends, []string{ledger.Reused, Lost, Duplicate})...),
		Calls:    outcomesOf(m.calls, api, slices.Concat(ends, []string{"retry", ledger.Submitted, ledger.PushedBack, httpcall.DeniedCall})...),
	}
}

// Duplicate is the outcome of a job that was in its queue a second time and was not called again.
const Duplicate = "duplicate"

// Deleted is the outcome of a job whose message was deleted by hand.
const Deleted = "deleted"

// Lost is the outcome of a job that its stream counts but cannot return.
const Lost = "lost"
