package jobs

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
	"weir/ingest/await"
)

// TestForgottenKeys: a job whose call may have been processed is called again under its key as long as the api knows
// the key, and never later: whatever held it meanwhile, and even if how long the api knows keys was configured after
// the call.
func TestForgottenKeys(t *testing.T) {
	t.Parallel()
	const always, day = "idempotency: {header: Idempotency-Key}", "idempotency: {header: Idempotency-Key, for: 24h}"
	restart := func(r *weirtest.Rig) { r.Stop(); r.Start() }
	for what, c := range map[string]struct {
		lines     string // of the api, during the first call
		meanwhile func(r *weirtest.Rig)
		passes    time.Duration
		parked    bool
	}{
		"a pause":                         {day, nil, 23 * time.Hour, false},
		"a pause that is too long":        {day, nil, 25 * time.Hour, true},
		"a restart":                       {day, restart, 23 * time.Hour, false},
		"a restart in too long a pause":   {day, restart, 25 * time.Hour, true},
		"a long time, and it never does":  {always, restart, 10000 * time.Hour, false},
		"a change of what is known of it": {always, func(r *weirtest.Rig) { r.Stop(); r.YAML = strings.Replace(r.YAML, always, day, 1); r.Start() }, 25 * time.Hour, true},
		"a redrive": {day + "\n    retry: {attempts: 1}", func(r *weirtest.Rig) {
			r.Store().Ended("pay", "k", 1)
			r.CLI().Must("dead", "redrive", "--yes")
		}, 23 * time.Hour, false},
		"a redrive in too long a pause": {day + "\n    retry: {attempts: 1}", func(r *weirtest.Rig) {
			r.Store().Ended("pay", "k", 1)
			r.CLI().Must("dead", "redrive", "--yes")
		}, 25 * time.Hour, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			entered, released := make(chan struct{}, 1), make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			t.Cleanup(release)
			r := weirtest.ReadyRig(t, fakeapi.Options{
				Key: fakeapi.KeyFrom{Segment: -1}, Headers: []string{"Idempotency-Key"},
				Script: func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
					if q.Number > 1 {
						return fakeapi.Behaviour{}
					}
					entered <- struct{}{}
					select {
					case <-released:
					case <-ctx.Done():
					}
					return fakeapi.Behaviour{Fault: fakeapi.FaultResetBody}
				},
			}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1000/s, capacity: 50}\n    breaker: {failures: 0}\n    "+c.lines+"\n")
			t.Cleanup(r.Stop)
			r.Clock = clock.New()
			r.Start()
			r.Producer().Pay("k", "k")
			await.Receive(t, "the first call", entered)
			r.CLI().Must("pause", "pay")
			release()
			r.Eventually("the record of the first call", func() bool { return len(r.Store().Ledger("pay", "k")) == 1 })
			if c.meanwhile != nil {
				c.meanwhile(r)
			}
			r.Clock.Set(c.passes)
			r.CLI().Must("resume", "pay")
			r.Store().Ended("pay", "k", 1)
			calls, letters := r.API.Arrivals("k"), r.Store().Letters("pay", "k")
			if c.parked {
				if len(calls) != 1 || len(letters) != 1 || letters[0].Header.Get(deadletter.HeaderReason) != string(deadletter.Unknown) ||
					!strings.Contains(letters[0].Header.Get(deadletter.HeaderDetail), "may have forgotten the idempotency key") {
					t.Errorf("%d calls, letters %v", len(calls), letters)
				}
				return
			}
			if len(calls) != 2 || calls[0].Header("Idempotency-Key") != "k" || calls[1].Header("Idempotency-Key") != "k" || len(r.Store().Results("pay", "k")) != 1 {
				t.Errorf("calls %v, letters %v", calls, letters)
			}
		})
	}
}
