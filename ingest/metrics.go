package ingest

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the intake's counters, by api. They are safe for concurrent use. A key must never be a label.
type metrics struct {
	accepted, throttled, overSoft, refused *prometheus.CounterVec
	duration                               *prometheus.HistogramVec

	apis sync.Map // *apiMetrics by label: the configured apis, and NoToken
}

// apiMetrics are the metrics of one api. take looks them up once per job instead of once per counter.
type apiMetrics struct {
	label                         string
	accepted, throttled, overSoft prometheus.Counter
	refused                       map[Code]prometheus.Counter
	duration                      prometheus.ExemplarObserver
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		accepted:  counter("weir_jobs_accepted_total", "Jobs stored and promised to their producers.", "api"),
		throttled: counter("weir_jobs_throttled_total", "Jobs refused because their bucket was full, would be late, or an admission limit said no.", "api"),
		overSoft:  counter("weir_jobs_over_soft_total", "Jobs stored above an admission limit, within its soft part.", "api"),
		refused:   counter("weir_jobs_refused_total", "Jobs refused, by the code that their producers were told: 400, 404, 413, 429 or 503.", "api", "code"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_intake_duration_seconds", Help: "How long producers' jobs took from their arrival to the answer.", Buckets: intakeBounds(),
		}, []string{"api"}),
	}
	if r != nil {
		r.MustRegister(m.accepted, m.throttled, m.overSoft, m.refused, m.duration)
	}
	m.of(NoToken)
	return m
}

// intakeBounds returns the histogram bounds in seconds. A write takes a fraction of a millisecond on a fast disk, and
// seconds on a failing one.
func intakeBounds() []float64 {
	return []float64{0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}
}

// of returns the metrics of a configured api. Other names share those of NoToken. It creates all series of the api at
// once, so that the first refusal shows as an increase.
func (m *metrics) of(label string) *apiMetrics {
	if known, ok := m.apis.Load(label); ok {
		return known.(*apiMetrics)
	}
	a := &apiMetrics{label: label, refused: map[Code]prometheus.Counter{}, duration: m.duration.WithLabelValues(label).(prometheus.ExemplarObserver)}
	if label != NoToken {
		a.accepted, a.throttled, a.overSoft = m.accepted.WithLabelValues(label), m.throttled.WithLabelValues(label), m.overSoft.WithLabelValues(label)
	}
	for _, code := range [...]Code{Invalid, UnknownAPI, TooLarge, Throttled, Unavailable} {
		a.refused[code] = m.refused.WithLabelValues(label, strconv.Itoa(int(code)%1000))
	}
	known, _ := m.apis.LoadOrStore(label, a)
	return known.(*apiMetrics)
}

// count counts the answer to a job and observes how long it took. It ignores Unsure: the job has no answer.
func (a *apiMetrics) count(answer *Answer, since time.Time, t Trace) {
	switch r := answer.Refusal; {
	case r == nil:
	case r.Code == Unsure:
		return
	default:
		a.refused[r.Code].Inc()
	}
	seconds := time.Since(since).Seconds()
	if t.Sampled() {
		a.duration.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": t.ID()})
		return
	}
	a.duration.(prometheus.Observer).Observe(seconds)
}
