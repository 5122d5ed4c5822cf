package otlp

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// counts are the metrics of spans.
type counts struct {
	waiting               atomic.Int64
	sent, failed, dropped prometheus.Counter
}

// refused counts spans that the receiver rejected in an answer of success. The same spans also count as sent.
func (c *counts) refused(spans int) { c.failed.Add(float64(spans)) }

// bounded bounds the number of waiting spans, and counts the spans that it drops. The SDK's own queue drops spans
// without counting them.
type bounded struct {
	sdk.SpanProcessor
	counts *counts
	most   int64
}

// OnEnd implements sdk.SpanProcessor. It never blocks.
func (b *bounded) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if b.counts.waiting.Add(1) > b.most {
		b.counts.waiting.Add(-1)
		b.counts.dropped.Inc()
		return
	}
	b.SpanProcessor.OnEnd(s)
}

// counting counts the spans that are sent and the spans that could not be sent.
type counting struct {
	sdk.SpanExporter
	counts *counts
}

// ExportSpans implements sdk.SpanExporter.
func (c *counting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	c.counts.waiting.Add(-int64(len(spans)))
	if err != nil {
		c.counts.failed.Add(float64(len(spans)))
		return err
	}
	c.counts.sent.Add(float64(len(spans)))
	return nil
}
