package otlp

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir/dispatcher/trace"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Options of a Sender. All are required.
type Options struct {
	Version, Instance string
	Log               *slog.Logger
	Registerer        prometheus.Registerer
}

// Sender sends spans while it is open.
type Sender struct {
	provider *sdk.TracerProvider
	client   *client
	tracer   *trace.Tracer
}

// Open returns a Sender if the environment asks for traces, and nil otherwise. If a variable is wrong, Open logs that
// and returns nil, because weir must work without traces.
func Open(ctx context.Context, o Options) *Sender {
	counted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_trace_spans_total",
		Help: "Spans that were written, by what became of them: sent, failed (the receiver refused them or did not answer) or dropped (too many waited).",
	}, []string{"outcome"})
	c := &counts{sent: counted.WithLabelValues("sent"), failed: counted.WithLabelValues("failed"), dropped: counted.WithLabelValues("dropped")}
	o.Registerer.MustRegister(counted)
	if !wanted() {
		return nil
	}
	log := o.Log.With("component", "otlp")
	s, err := readSettings()
	if err != nil {
		log.Warn("no traces are sent", "err", err)
		return nil
	}
	told := &seldom{log: log}
	otel.SetErrorHandler(told) // OpenTelemetry has only one handler for the whole process
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName("weir"), semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(o.Instance)), resource.WithFromEnv())
	if err != nil {
		log.Warn("OTEL_RESOURCE_ATTRIBUTES cannot be read in full", "err", err)
	}
	sender := &Sender{client: newClient(s, "weir/"+o.Version, c.refused)}
	exporter := otlptrace.NewUnstarted(sender.client)
	queue := &bounded{
		SpanProcessor: sdk.NewBatchSpanProcessor(&counting{SpanExporter: exporter, counts: c}, sdk.WithMaxQueueSize(s.queue)), most: int64(s.queue), counts: c,
	}
	sender.provider = sdk.NewTracerProvider(sdk.WithResource(of), sdk.WithIDGenerator(trace.IDs{}), sdk.WithSpanProcessor(queue))
	sender.tracer = trace.New(sender.provider, o.Version)
	log.Info("traces are sent", "to", s.endpoint.Host)
	return sender
}

// Tracer returns the Sender's tracer. It returns nil if s is nil.
func (s *Sender) Tracer() *trace.Tracer {
	if s == nil {
		return nil
	}
	return s.tracer
}

// closing bounds how long Close sends the last spans.
const closing = 3 * time.Second

// Close sends the waiting spans for at most three seconds, and drops the rest.
func (s *Sender) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	stop := context.AfterFunc(ctx, s.client.close)
	defer stop()
	_ = s.provider.Shutdown(ctx) // the error handler has logged a failure
	return s.client.Stop(ctx)
}

// seldom logs errors of OpenTelemetry, at most one a minute, because an unreachable receiver fails every batch.
type seldom struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (s *seldom) Handle(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last) < time.Minute {
		return
	}
	s.last = time.Now()
	s.log.Warn("could not send spans as the OTEL_ variables configure; jobs are not affected", "err", err)
}
