package trace

import (
	"strings"
	"testing"
	"time"

	"weir/ingest"

	"github.com/nats-io/nats.go"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

const someParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// replica is one replica's Tracer and what it has written.
func replica(sampler sdk.Sampler) (*Tracer, *tracetest.InMemoryExporter) {
	kept := tracetest.NewInMemoryExporter()
	return New(sdk.NewTracerProvider(sdk.WithSyncer(kept), sdk.WithIDGenerator(IDs{}), sdk.WithSampler(sampler)), "1"), kept
}

func someJob(parent string) *ingest.Job {
	h := nats.Header{"traceparent": {parent}}
	return &ingest.Job{API: "pay", Key: "k", ID: "order-7", Header: h, Trace: ingest.TraceOf(h)}
}

var somewhere = Place{Stream: "WEIR_pay_1", Seq: 17, Accepted: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}

// TestReplicasAgreeOnIDs checks that another replica, which knows only the job, writes the ids that one replica
// has sent to the api.
func TestReplicasAgreeOnIDs(t *testing.T) {
	for _, parent := range []string{someParent, ""} {
		one, _ := replica(sdk.ParentBased(sdk.AlwaysSample()))
		two, kept := replica(sdk.ParentBased(sdk.AlwaysSample()))
		told := one.Job(someJob(parent), somewhere).Outgoing(2)
		j := two.Job(someJob(parent), somewhere)
		j.Call(Call{Number: 2, Method: "POST", Scheme: "https", Host: "api.example.com", Port: 443, Started: somewhere.Accepted, Ended: somewhere.Accepted})
		j.End(End{Outcome: "done"})
		spans := kept.GetSpans()
		call, job := spans[0], spans[1]
		if want := "00-" + call.SpanContext.TraceID().String() + "-" + call.SpanContext.SpanID().String() + "-01"; told.Parent != want {
			t.Errorf("one replica told %s, the other wrote %s", told.Parent, want)
		}
		if call.Parent.SpanID() != job.SpanContext.SpanID() || parent != "" && (job.Parent.SpanID().String() != "b7ad6b7169203331" || !strings.Contains(parent, told.ID())) {
			t.Errorf("the job is below %v, its call below %v", job.Parent, call.Parent)
		}
		other := somewhere
		other.Seq++
		if again := two.Job(someJob(parent), other).Outgoing(2); again.Parent == told.Parent {
			t.Error("two jobs have one span")
		}
	}
}

// TestSamplersDecide checks that the sampler decides by the producer's flag, or by the trace's id, the same each
// time.
func TestSamplersDecide(t *testing.T) {
	off := strings.TrimSuffix(someParent, "01") + "00"
	for _, c := range []struct {
		sampler sdk.Sampler
		parent  string
		want    bool
	}{
		{sdk.ParentBased(sdk.AlwaysSample()), someParent, true},
		{sdk.ParentBased(sdk.AlwaysSample()), off, false},
		{sdk.ParentBased(sdk.NeverSample()), someParent, true},
		{sdk.ParentBased(sdk.NeverSample()), "", false},
		{sdk.AlwaysSample(), off, true},
		{sdk.NeverSample(), someParent, false},
	} {
		tracer, kept := replica(c.sampler)
		j := tracer.Job(someJob(c.parent), somewhere)
		j.Wait(somewhere.Accepted, somewhere.Accepted.Add(time.Second), 1)
		j.Settle(somewhere.Accepted, somewhere.Accepted, 1, "done")
		j.End(End{Outcome: "done"})
		if (len(kept.GetSpans()) == 3) != c.want || j.Recorded() || (j.Outgoing(1) != ingest.Trace{}) {
			t.Errorf("%s, %q: %d spans were written", c.sampler.Description(), c.parent, len(kept.GetSpans()))
		}
	}
	tracer, _ := replica(sdk.TraceIDRatioBased(0.5))
	recorded := 0
	for n := range 1000 {
		at := somewhere
		at.Seq = uint64(n)
		first, second := tracer.Job(someJob(""), at), tracer.Job(someJob(""), at)
		if first.Recorded() != second.Recorded() {
			t.Fatal("a job is recorded by one process and not by another")
		}
		if first.Recorded() {
			recorded++
		}
	}
	if recorded < 400 || recorded > 600 {
		t.Errorf("%d of 1000 jobs are recorded, of which half are to be", recorded)
	}
}

// TestNoTracerCostsNothing checks that nothing is allocated if no traces are sent.
func TestNoTracerCostsNothing(t *testing.T) {
	var none *Tracer
	m := someJob(someParent)
	if n := testing.AllocsPerRun(100, func() {
		j := none.Job(m, somewhere)
		j.Wait(somewhere.Accepted, somewhere.Accepted, 1)
		j.Call(Call{Number: 1})
		j.Settle(somewhere.Accepted, somewhere.Accepted, 1, "done")
		j.End(End{Outcome: "done"})
		if j.Recorded() || j.TraceID() != "" || (j.Outgoing(1) != ingest.Trace{}) {
			t.Error("a trace without a tracer")
		}
	}); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}
