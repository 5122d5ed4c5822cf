package dispatcher

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges reads its values from the workers at each collection.
type gauges struct{ d *Dispatcher }

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queuedDesc, keysDesc, inFlightDesc, heldDesc, pausedDesc, partsDesc, ownedDesc, missedDesc, expiryDesc, polledDesc, oldestDesc, silentDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(missedDesc, prometheus.CounterValue, float64(g.d.env.Recorder.Missed()))
	for _, w := range g.d.workersNow() {
		n, polls := w.Counts(), w.poller.State()
		oldest := 0.0
		if !polls.Oldest.IsZero() {
			oldest = max(0, time.Since(polls.Oldest).Seconds())
		}
		ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, oldest, w.Name)
		ch <- prometheus.MustNewConstMetric(silentDesc, prometheus.GaugeValue, polls.Silent.Seconds(), w.Name)
		ends := math.Inf(1)
		if !n.Expires.IsZero() {
			ends = float64(n.Expires.Unix())
		}
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, ends, w.Name)
		for desc, v := range map[*prometheus.Desc]int{
			queuedDesc: n.Queued, keysDesc: n.Keys, inFlightDesc: n.Calling, heldDesc: n.Held, pausedDesc: n.Paused, polledDesc: n.Polled, partsDesc: len(w.Partitions), ownedDesc: n.Owned,
		} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v), w.Name)
		}
	}
}

var (
	queuedDesc   = prometheus.NewDesc("weir_queued_jobs", "Jobs that are due, and wait for their call or their retry.", []string{"api"}, nil)
	keysDesc     = prometheus.NewDesc("weir_keys", "Keys that have unfinished jobs.", []string{"api"}, nil)
	inFlightDesc = prometheus.NewDesc("weir_in_flight_calls", "Calls running now.", []string{"api"}, nil)
	heldDesc     = prometheus.NewDesc("weir_held", "Keys that are held, and the api as one more if it is held or a budget is spent.", []string{"api"}, nil)
	pausedDesc   = prometheus.NewDesc("weir_paused", "Keys that an operator has paused, and the api as one more if it is paused.", []string{"api"}, nil)
	missedDesc   = prometheus.NewDesc("weir_recorder_missed_total", "Calls of which the flight recorder had no room to note something.", nil, nil)
	partsDesc    = prometheus.NewDesc("weir_partitions", "Partitions of the api, whoever dispatches them.", []string{"api"}, nil)
	expiryDesc   = prometheus.NewDesc("weir_certificate_expiry_timestamp_seconds", "When the first certificate of the newest connection to an https api ends, the api's, an authority's or weir's own, in seconds since 1970; +Inf where there is none.", []string{"api"}, nil)
	polledDesc   = prometheus.NewDesc("weir_operations", "Operations that the api has begun and not ended: weir polls them.", []string{"api"}, nil)
	oldestDesc   = prometheus.NewDesc("weir_operation_oldest_seconds", "How long ago the call of the oldest of these operations was made; 0 where there is none.", []string{"api"}, nil)
	silentDesc   = prometheus.NewDesc("weir_operation_silent_seconds", "For how long no poll has said how an operation stands, since the first that failed; 0 if the last one did.", []string{"api"}, nil)
	ownedDesc    = prometheus.NewDesc("weir_partitions_owned", "Partitions this replica dispatches.", []string{"api"}, nil)
)
