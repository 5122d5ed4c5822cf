package lane

import (
	"sync"

	"weir/dispatcher/ledger"

	"github.com/prometheus/client_golang/prometheus"
)

// spending is the metric of money. Like every other account of money, it adds up records of the ledger: here, those
// that this process has stored. It counts in whole millionths, because a sum of floats would be inexact after a few
// calls. It is safe for concurrent use.
//
// It begins with 0 at each start. Beginning with the ledger's sum was rejected for two reasons. Every replica would
// count everything. And once old records are deleted, a restart would make the counter fall: Prometheus takes that for
// a reset, and counts everything again.
type spending struct {
	mu    sync.Mutex // guards what follows
	spent map[string]ledger.Spending
	saved map[string]ledger.Savings
}

var (
	spendDesc = prometheus.NewDesc("weir_spend_total", "Money spent on calls that were billed, as the ledger has them.", []string{"api"}, nil)
	doubtDesc = prometheus.NewDesc("weir_spend_in_doubt_total", "Money for calls that may have been billed, as the ledger has them.", []string{"api"}, nil)
	savedDesc = prometheus.NewDesc("weir_spend_saved_total", "Money that calls would have cost that were not made, because their jobs got the answers of equal ones, as far as prices are fixed.", []string{"api"}, nil)
)

// announce creates an api's series, so that they exist before anything is spent.
func (s *spending) announce(api string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.spent[api]; !known {
		s.spent[api], s.saved[api] = ledger.Spending{}, ledger.Savings{}
	}
}

// Add counts a record that was stored.
func (s *spending) Add(c *ledger.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.spent[c.API]
	of.AddRecord(c)
	s.spent[c.API] = of
	saved := s.saved[c.API]
	saved.AddRecord(c)
	s.saved[c.API] = saved
}

// Describe implements prometheus.Collector.
func (s *spending) Describe(ch chan<- *prometheus.Desc) {
	ch <- spendDesc
	ch <- doubtDesc
	ch <- savedDesc
}

// Collect implements prometheus.Collector.
func (s *spending) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for api, of := range s.spent {
		ch <- prometheus.MustNewConstMetric(spendDesc, prometheus.CounterValue, float64(of.Spent)/1e6, api)
		ch <- prometheus.MustNewConstMetric(doubtDesc, prometheus.CounterValue, float64(of.InDoubt)/1e6, api)
		ch <- prometheus.MustNewConstMetric(savedDesc, prometheus.CounterValue, float64(s.saved[api].Saved)/1e6, api)
	}
}
