package dispatcher

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// spending is the metric of money. It is counted in whole millionths: a sum of floats would be off from the first few calls on.
// It is safe for concurrent use.
type spending struct {
	mu         sync.Mutex       // guards what follows
	millionths map[string]int64 // by api
}

var spendDesc = prometheus.NewDesc("weir_spend_total", "Money spent on calls that were or may have been billed.", []string{"api"}, nil)

func (s *spending) add(api string, millionths int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.millionths[api] += millionths
}

// Describe implements prometheus.Collector.
func (s *spending) Describe(ch chan<- *prometheus.Desc) { ch <- spendDesc }

// Collect implements prometheus.Collector.
func (s *spending) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for api, n := range s.millionths {
		ch <- prometheus.MustNewConstMetric(spendDesc, prometheus.CounterValue, float64(n)/1e6, api)
	}
}
