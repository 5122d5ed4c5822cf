package weirtest

import (
	"net/http"
	"slices"
	"time"

	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

type FirstPage struct {
	Path  string
	Tries int
	Part  float64
}

// AskFor returns the shortest time in which weir answers with a page.
func (r *Rig) AskFor(p FirstPage) time.Duration {
	r.T.Helper()
	return LeastOf(p.Tries, func() {
		if status, body := r.Say("GET", p.Path, "", ""); status != http.StatusOK {
			r.T.Fatalf("%s: %d %s", p.Path, status, body)
		}
	})
}

// LeastOf runs what n times and returns the shortest duration, because other work of the machine disturbs it least.
func LeastOf(n int, what func()) time.Duration {
	var took []time.Duration
	for range n {
		began := time.Now()
		what()
		took = append(took, time.Since(began))
	}
	return slices.Min(took)
}

// ReadAll reads the headers of all letters over NATS, as any client would.
func (r *Rig) ReadAll(letters int) {
	t := r.T
	t.Helper()
	ctx := await.Context(t, "a bare read")
	c, err := r.Operators().OrderedConsumer(ctx, deadletter.Stream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := c.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer msgs.Stop()
	for range letters {
		if _, err := msgs.Next(jetstream.NextContext(ctx)); err != nil {
			t.Fatal(err)
		}
	}
}
