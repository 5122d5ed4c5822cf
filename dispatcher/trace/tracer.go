package trace

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"weir/ingest"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Tracer writes the spans of jobs. A nil Tracer writes none, and costs nothing. It is safe for concurrent use,
// and never blocks.
type Tracer struct{ spans trace.Tracer }

// New returns a Tracer that writes to a provider. The provider must use IDs as its generator.
func New(p trace.TracerProvider, version string) *Tracer {
	return &Tracer{p.Tracer("weir", trace.WithInstrumentationVersion(version), trace.WithSchemaURL(semconv.SchemaURL))}
}

// Attributes that no convention has a name for.
const (
	attrAPI       = attribute.Key("weir.api")
	attrKey       = attribute.Key("weir.key")
	attrStream    = attribute.Key("weir.stream")
	attrSeq       = attribute.Key("weir.seq")
	attrRedrives  = attribute.Key("weir.redrives")
	attrCall      = attribute.Key("weir.call")
	attrAttempt   = attribute.Key("weir.attempt")
	attrSent      = attribute.Key("weir.sent")
	attrOutcome   = attribute.Key("weir.outcome")
	attrDetail    = attribute.Key("weir.detail")
	attrBilled    = attribute.Key("weir.billed")
	attrDuplicate = attribute.Key("weir.duplicate")
	attrCode      = attribute.Key("weir.refusal.code")
	attrLetter    = attribute.Key("weir.dead_letter_seq")
)

// Job writes the spans of one job. A nil Job writes none. It belongs to one goroutine at a time.
type Job struct {
	spans trace.Tracer
	span  trace.Span
	ids   ids
	api   string
}

// Place is a job's place in its queue. All replicas identify the job by it.
type Place struct {
	Stream   string
	Seq      uint64
	Accepted time.Time // when the stream took the job; zero: unknown
}

// Job returns the Job that writes a job's spans, nil without a Tracer. It writes no span itself.
func (t *Tracer) Job(m *ingest.Job, at Place) *Job {
	if t == nil {
		return nil
	}
	j := &Job{spans: t.spans, api: m.API, ids: idsFrom(fmt.Appendf(nil, "job %s %d %s", at.Stream, at.Seq, m.ID))}
	started := at.Accepted
	if started.IsZero() {
		started = time.Now()
	}
	ctx := withIDs(producer(m.Trace), j.ids)
	_, j.span = t.spans.Start(ctx, "process "+m.API, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(started))
	if j.span.IsRecording() {
		j.span.SetAttributes(ofJob(m, "process")...)
		j.span.SetAttributes(semconv.MessagingOperationTypeProcess, attrStream.String(at.Stream), attrSeq.Int64(int64(at.Seq)))
		if m.Redrives > 0 {
			j.span.SetAttributes(attrRedrives.Int(m.Redrives))
		}
	}
	return j
}

// producer returns the context of the producer's span.
func producer(t ingest.Trace) context.Context {
	if t.Parent == "" {
		return context.Background()
	}
	carrier := propagation.MapCarrier{ingest.HeaderTrace: t.Parent, ingest.HeaderTraceState: t.State}
	return propagation.TraceContext{}.Extract(context.Background(), carrier)
}

func ofJob(m *ingest.Job, operation string) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKey.String("nats"), semconv.MessagingOperationName(operation),
		semconv.MessagingDestinationTemplate(ingest.SubjectPrefix + "{api}.{key}"), semconv.MessagingMessageID(m.ID),
		semconv.MessagingMessageBodySize(len(m.Body)), attrAPI.String(m.API), attrKey.String(m.Key),
	}
}

// Recorded reports whether the job's spans are written.
func (j *Job) Recorded() bool { return j != nil && j.span.IsRecording() }

// TraceID returns the id of the job's trace, "" for a nil Job.
func (j *Job) TraceID() string {
	if j == nil {
		return ""
	}
	return j.span.SpanContext().TraceID().String()
}

// idsOf returns the ids of a span whose parent is the job's span.
func (j *Job) idsOf(what string, call int) ids {
	w := idsFrom(fmt.Appendf(nil, "%s %x %d", what, j.ids.span, call))
	w.trace = j.ids.trace
	return w
}

// below returns the context for a span whose parent is the job's span.
func (j *Job) below(what string, call int) context.Context {
	return withIDs(trace.ContextWithSpan(context.Background(), j.span), j.idsOf(what, call))
}

// Outgoing returns the trace context that the api gets with a call. It returns none if the trace is not recorded: the
// producer's context then serves as well.
func (j *Job) Outgoing(number int) ingest.Trace {
	if !j.Recorded() {
		return ingest.Trace{}
	}
	of := j.span.SpanContext().WithSpanID(j.idsOf("call", number).span)
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), of), carrier)
	return ingest.Trace{Parent: carrier[ingest.HeaderTrace], State: carrier[ingest.HeaderTraceState]}
}

// Call is one call that has ended.
type Call struct {
	Number, Attempt int
	Method          string
	Scheme, Host    string
	Port            int
	Started, Ended  time.Time
	Sent            bool
	Status          int    // 0: no answer
	Outcome, Detail string // as in the ledger
	Failed          bool   // the call did not complete the job
}

// Call writes the span of a call. A span written twice is the same span.
func (j *Job) Call(c Call) {
	if !j.Recorded() {
		return
	}
	address := c.Scheme + "://" + c.Host
	attrs := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(c.Method), semconv.ServerAddress(c.Host), semconv.ServerPort(c.Port), semconv.URLScheme(c.Scheme),
		semconv.URLFull(fmt.Sprintf("%s:%d/REDACTED", address, c.Port)), semconv.NetworkProtocolVersion("1.1"),
		attrAPI.String(j.api), attrCall.Int(c.Number), attrAttempt.Int(c.Attempt), attrSent.Bool(c.Sent), attrOutcome.String(c.Outcome),
	}
	if c.Number > 1 {
		attrs = append(attrs, semconv.HTTPRequestResendCount(c.Number-1))
	}
	if c.Status != 0 {
		attrs = append(attrs, semconv.HTTPResponseStatusCode(c.Status))
	}
	failed := c.Failed || c.Status >= 400
	if failed {
		attrs = append(attrs, semconv.ErrorTypeKey.String(c.errorType()), attrDetail.String(c.Detail))
	}
	_, span := j.spans.Start(j.below("call", c.Number), c.Method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(c.Started), trace.WithAttributes(attrs...))
	if failed {
		span.SetStatus(codes.Error, c.Detail)
	}
	span.End(trace.WithTimestamp(c.Ended))
}

// errorType returns one of a few words, as the conventions require.
func (c Call) errorType() string {
	switch {
	case c.Status != 0:
		return strconv.Itoa(c.Status)
	case c.Sent:
		return "no_answer"
	}
	return "not_sent"
}

// Wait writes the span of the wait before the job's call with this number. If the job is not called again, it is the
// wait before the job's end.
func (j *Job) Wait(from, to time.Time, call int) {
	j.inner("wait", call, from, to)
}

// Settle writes the span of storing a job's outcome. call is the number of the job's last call.
func (j *Job) Settle(from, to time.Time, call int, outcome string) {
	if j.Recorded() {
		j.inner("settle", call, from, to, attrOutcome.String(outcome))
	}
}

func (j *Job) inner(name string, call int, from, to time.Time, attrs ...attribute.KeyValue) {
	if !j.Recorded() || from.IsZero() {
		return
	}
	if to.Before(from) {
		to = from // the stream's clock and ours may differ
	}
	attrs = append(attrs, attrAPI.String(j.api), attrCall.Int(call))
	_, span := j.spans.Start(j.below(name, call), name+" "+j.api, trace.WithTimestamp(from), trace.WithAttributes(attrs...))
	span.End(trace.WithTimestamp(to))
}

// End says how a job ended.
type End struct {
	Outcome        string // done, or the reason of the letter
	Failed         bool
	Detail, Billed string // of the letter
	Calls          int
	Attempts       int
}

// End writes the job's own span. The job writes no other span after that.
func (j *Job) End(e End) {
	if !j.Recorded() {
		return
	}
	j.span.SetAttributes(attrOutcome.String(e.Outcome), attrCall.Int(e.Calls), attrAttempt.Int(e.Attempts))
	if e.Failed {
		j.span.SetAttributes(semconv.ErrorTypeKey.String(e.Outcome), attrDetail.String(e.Detail), attrBilled.String(e.Billed))
		j.span.SetStatus(codes.Error, e.Outcome+": "+e.Detail)
	}
	j.span.End()
}

// Answered writes the span of a job's way through the intake. If the intake accepted the job, the span's parent is the
// job's own span, otherwise the producer's.
func (t *Tracer) Answered(a *ingest.Answered) {
	if t == nil {
		return
	}
	ctx := producer(a.Job.Trace)
	if a.Refusal == nil && !a.Receipt.Duplicate {
		j := t.Job(a.Job, Place{Stream: a.Receipt.Stream, Seq: a.Receipt.Seq})
		if !j.Recorded() {
			return
		}
		ctx = j.below("accept", 0)
	}
	_, span := t.spans.Start(ctx, "accept "+a.API, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(a.Arrived))
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(ofJob(a.Job, "accept")...)
	span.SetAttributes(semconv.MessagingOperationTypeReceive, attrStream.String(a.Stream))
	switch r := a.Refusal; {
	case r != nil:
		code := int(r.Code) % 1000
		span.SetAttributes(attrCode.Int(code), semconv.ErrorTypeKey.String(strconv.Itoa(code)), attrDetail.String(r.Description))
		if r.LetterSeq != 0 {
			span.SetAttributes(attrLetter.Int64(int64(r.LetterSeq)))
		}
		span.SetStatus(codes.Error, r.Description)
	case a.Receipt.Duplicate:
		span.SetAttributes(attrDuplicate.Bool(true), attrSeq.Int64(int64(a.Receipt.Seq)))
	default:
		span.SetAttributes(attrSeq.Int64(int64(a.Receipt.Seq)))
	}
	span.End()
}
