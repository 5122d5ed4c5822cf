package worker

import (
	"context"
	"sync"
	"time"

	"weir/cmd/weir/internal/serve/streamwatch"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// storeMetrics reports how full the store is, how full each bounded stream is, and how many streams lack copies. It
// reads the bounded streams during a scrape, every ten seconds at most.
type storeMetrics struct {
	js     jetstream.JetStream
	guard  *diskGuard
	copies *streamwatch.CopyWatch

	mu     sync.Mutex // guards looked and full; held while the streams are read
	looked time.Time
	full   map[string]float64 // by stream: the used part of its bound; streams without a bound are absent
}

var (
	storeDesc = prometheus.NewDesc("weir_store_used_ratio",
		"How much of the room in the store is used, 0 to 1. From 0.875 on jobs are refused with 503: the rest is for their ends.", nil, nil)
	streamDesc = prometheus.NewDesc("weir_stream_used_ratio",
		"How much of its own bound a stream uses, 0 to 1: the letters', which take nothing more when they are full; results, ledger and events, which drop their oldest.",
		[]string{"stream"}, nil)
	lackingDesc = prometheus.NewDesc("weir_streams_lacking_copies",
		"How many of weir's streams have lacked a current copy, or a leader, for ten minutes.", nil, nil)
)

const (
	streamsEvery = 10 * time.Second
	streamsWait  = 2 * time.Second // the longest that reading all streams together may take
)

// Describe implements prometheus.Collector.
func (m *storeMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- storeDesc
	ch <- streamDesc
	ch <- lackingDesc
}

// Collect implements prometheus.Collector. A series is absent if the server names no bound or does not answer.
func (m *storeMetrics) Collect(ch chan<- prometheus.Metric) {
	if ratio, ok := m.guard.ratio(); ok {
		ch <- prometheus.MustNewConstMetric(storeDesc, prometheus.GaugeValue, ratio)
	}
	ch <- prometheus.MustNewConstMetric(lackingDesc, prometheus.GaugeValue, float64(m.copies.Count()))
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.looked) > streamsEvery {
		m.lookLocked()
		m.looked = time.Now()
	}
	for stream, ratio := range m.full {
		ch <- prometheus.MustNewConstMetric(streamDesc, prometheus.GaugeValue, ratio, stream)
	}
}

func (m *storeMetrics) lookLocked() {
	ctx, cancel := context.WithTimeout(context.Background(), streamsWait)
	defer cancel()
	m.full = map[string]float64{}
	for _, name := range [...]string{deadletter.Stream, deadletter.EventsStream, ledger.ResultsStream, ledger.CallsStream} {
		stream, err := m.js.Stream(ctx, name)
		if err != nil {
			continue
		}
		if info := stream.CachedInfo(); info.Config.MaxBytes > 0 {
			m.full[name] = float64(info.State.Bytes) / float64(info.Config.MaxBytes)
		}
	}
}
