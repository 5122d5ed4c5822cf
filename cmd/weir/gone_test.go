package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/lease"
	"weir/ingest/await"
)

// TestGoneAreKnown: a replica that is killed is known to be gone to who shares its machine, at once; one that is stopped is not.
func TestGoneAreKnown(t *testing.T) {
	r := newReplicas(t, oneServer(t), 3, fmt.Sprintf(replicaAPI, notIdempotent))
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	sessions := map[string]string{}
	all := make(chan struct{})
	go func() {
		_ = registry.Watch(t.Context(), func(s lease.Sighting) {
			if s.Member == nil || len(sessions) == 3 {
				return
			}
			if sessions[s.Member.Instance] = s.Session; len(sessions) == 3 {
				close(all)
			}
		})
	}()
	await.Receive(t, "the sessions of all replicas", all)
	r.signal(1, syscall.SIGSTOP)
	r.procs[0].kill()
	for instance, want := range map[string]bool{"replica-0": true, "replica-1": false, "replica-2": false} {
		if registry.Gone(sessions[instance]) != want {
			t.Errorf("%s, session %s: gone is %v", instance, sessions[instance], !want)
		}
	}
	r.signal(1, syscall.SIGCONT)
}
