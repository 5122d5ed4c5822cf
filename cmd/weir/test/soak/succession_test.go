package soak

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestSuccessorTakesOverAtOnce: the successor of a weir that was killed on its machine, with an external server, does
// not wait for its lease. One without the state directory of the killed weir knows nothing of its end, and waits. The
// wait is measured from the successor's membership to its first claim: how long a start takes is the machine's speed.
func TestSuccessorTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	r := weirtest.NewReplicas(t, servers.OneServer(t), 1, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent), "WEIR_STATE_DIR="+t.TempDir())
	env := slices.Clone(r.Each[0])
	waits := make(chan time.Duration, 64) // of one session each
	joined, claimed := map[string]time.Time{}, map[string]bool{}
	if _, err := r.NC.Subscribe("$KV."+lease.LeasesBucket+".>", func(m *nats.Msg) {
		at := time.Now()
		if member := strings.HasPrefix(string(m.Data), "{"); member {
			session := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
			if _, again := joined[session]; !again {
				joined[session] = at
			}
			return
		}
		if since, member := joined[string(m.Data)]; member && !claimed[string(m.Data)] {
			claimed[string(m.Data)] = true
			waits <- at.Sub(since)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	succeed := func() time.Duration {
		r.Procs[0].Kill()
		r.StartOne(0)
		return await.Receive(t, "the successor's first claim", waits)
	}
	var knowing, ignorant time.Duration
	for range 3 {
		knowing += succeed()
		r.Each[0] = append(slices.Clone(env), "WEIR_STATE_DIR="+t.TempDir())
		ignorant += succeed()
	}
	if t.Logf("three successors waited %v, and %v without the state directory", knowing, ignorant); knowing >= ignorant/2 {
		t.Error("the successors have waited for the lease")
	}
}
