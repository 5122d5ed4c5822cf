package trace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// IDs generates the ids of spans. If a Tracer has computed ids for a span, IDs uses these, otherwise random ones. A
// Tracer's provider must use IDs as its generator. It is safe for concurrent use.
type IDs struct{}

// ids are the ids that the next span must have.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// idsKey is the key under which a context carries computed ids. A context is all that a generator gets.
type idsKey struct{}

func withIDs(ctx context.Context, want ids) context.Context {
	return context.WithValue(ctx, idsKey{}, want)
}

// NewIDs returns the ids of a span without a parent.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if want, ok := ctx.Value(idsKey{}).(ids); ok {
		return want.trace, want.span
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) // a zero id is not valid
	return id, randomSpanID()
}

// NewSpanID returns the id of a span in an existing trace.
func (IDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if want, ok := ctx.Value(idsKey{}).(ids); ok {
		return want.span
	}
	return randomSpanID()
}

func randomSpanID() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// idsFrom computes ids from a text that names the span.
func idsFrom(name []byte) (w ids) {
	sum := sha256.Sum256(name)
	copy(w.trace[:], sum[:16])
	copy(w.span[:], sum[16:24])
	return w
}
