package limits

import (
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/weirtest"
)

// TestClockSetForward: weir starts while the machine's clock is behind, which is then set right, and starts anew by the right
// clock. It has not waited any longer for that.
func TestClockSetForward(t *testing.T) {
	t.Parallel()
	const interval, behind = 6 * time.Second, 4 * time.Second
	for what, shared := range map[string]string{"a key": "", "a shared limit": "    limits: [{name: account, rate: 1/6s}]\n"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/6s, capacity: 5}\n"+shared)
			r.Clock = clock.StartingAt(time.Now().Add(-behind))
			r.Start()
			t.Cleanup(r.Stop)
			for _, id := range []string{"first", "second"} {
				if a := r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": id}); a.Error != nil {
					t.Fatalf("%+v", a.Error)
				}
			}
			r.AwaitCalls(1)
			r.Stop()
			r.Clock = nil
			r.Start()
			calls := r.AwaitCalls(2)
			if gap := time.Duration(calls[1].At - calls[0].At); gap < interval-r.Referee().Eps() {
				t.Errorf("called again after %v; stamps are off by %v at most", gap, r.Referee().Eps())
			}
		})
	}
}
