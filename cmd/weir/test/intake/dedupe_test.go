package intake

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/bucket/queue"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const dedupeYAML = restartsYAML + "dedupe: %s\n"

// knownFor applies a configuration that says for how long ids are known, and waits until the streams do as well.
func (r *restarts) knownFor(d time.Duration) {
	r.T.Helper()
	r.ApplyConfig(fmt.Sprintf(dedupeYAML, "%s", d))
	r.Eventually("the streams to follow", func() bool {
		for p := 0; ; p++ {
			s, err := r.JS.Stream(r.T.Context(), queue.StreamName("ext", p))
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return p > 0
			}
			if err != nil || s.CachedInfo().Config.Duplicates != d {
				return false
			}
		}
	})
}

// TestDedupeLowered: ids are known for a shorter time from now on. A job that its stream takes under an id that is free
// again is called, or is a letter where the change was under way; it is not dropped for one that has ended.
func TestDedupeLowered(t *testing.T) {
	t.Parallel()
	r := newRestarts(t, fmt.Sprintf(dedupeYAML, "%s", "10m"))
	defer r.replica("only")()
	stream := r.insist("early").Stream
	r.AwaitCalls(1)
	r.knownFor(time.Second)

	taken := 1
	for n := 0; r.callsOf()[fmt.Sprint("x", n-1)] < 2; n++ {
		if n == 50 {
			t.Fatalf("of %d jobs whose ids were free again not one was called twice: %v", n, r.callsOf())
		}
		id := fmt.Sprint("x", n)
		r.take(id)
		r.Eventually("the id to be free", func() bool {
			ack, err := r.Operators().PublishMsg(t.Context(), r.copyOf(stream, id))
			return err == nil && !ack.Duplicate
		})
		taken += 2
		r.Eventually("each job to be called, or to be a letter", func() bool {
			return len(r.API.All())+r.Store().Messages("WEIR_DEAD") == taken
		})
	}
}

// TestDedupeRaised: ids are known for a longer time from now on, by the owner too when the server has forgotten them.
func TestDedupeRaised(t *testing.T) {
	t.Parallel()
	r := newRestarts(t, fmt.Sprintf(dedupeYAML, "%s", "4s"))
	defer r.replica("only")()
	stream := r.insist("early").Stream
	r.AwaitCalls(1)
	r.knownFor(10 * time.Minute)
	r.insist("x")
	sent := time.Now()
	r.AwaitCalls(2)
	r.Eventually("an empty queue", func() bool { return r.Store().Messages(stream) == 1 })
	r.restartServer()
	r.Eventually("more than the former time to pass", func() bool { return time.Since(sent) > 5*time.Second && r.NC.IsConnected() })
	r.storeTwin(stream, "x")
	if a := r.insist("x"); !a.Duplicate {
		t.Errorf("a job that has ended was taken again: %+v", a)
	}
	r.insist("y")
	r.AwaitCalls(3)
	if calls := r.callsOf(); calls["x"] != 1 || calls["y"] != 1 || r.Store().Messages("WEIR_DEAD") != 0 {
		t.Errorf("jobs were called %v times, and there are %d letters", calls, r.Store().Messages("WEIR_DEAD"))
	}
}

// take sends a job that must be taken, once: sent again after a second it would be another.
func (r *restarts) take(id string) {
	r.T.Helper()
	r.Producer().Send("ext", "k", nats.Header{"Nats-Msg-Id": {id}, "Weir-Header-X-Job": {id}}, "")
}

// copyOf is a job as an intake stores it.
func (r *restarts) copyOf(stream, id string) *nats.Msg {
	return &nats.Msg{Subject: "weir.q.ext." + stream[len("WEIR_ext_"):] + ".j.k", Header: nats.Header{
		"Nats-Msg-Id": {"k/" + id}, "Weir-Job-Id": {id}, "Weir-Header-X-Job": {id},
	}}
}
