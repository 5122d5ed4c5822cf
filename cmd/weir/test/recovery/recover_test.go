package recovery

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/ingest/await"
)

// TestRecovery leaves a worker's streams in every state in which a death can leave them, and starts one.
func TestRecovery(t *testing.T) {
	t.Parallel()
	r, notBefore := leftRig(t)
	r.Start()
	r.Store().CheckLeftovers(notBefore)
	letters := r.Store().Messages("WEIR_DEAD")
	calls := len(r.API.All())
	r.Stop()
	r.Start()
	if n, m := r.Store().Messages("WEIR_DEAD"), len(r.API.All()); n != letters || m != calls {
		t.Errorf("another restart made %d letters of %d, %d calls of %d", n, letters, m, calls)
	}
}

// TestRecoveryAfterMove does the same on another server, to which everything was moved in the state in which the death
// left it.
func TestRecoveryAfterMove(t *testing.T) {
	t.Parallel()
	r, notBefore := leftRig(t)
	url := servers.StartTarget(t)
	if got := program.Command(t, []string{"WEIR_REPLICAS=1"}, "move", "--from", filepath.Join(r.Dir, "data"), "--to", url); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	s := program.ExternalSettings(t, url, filepath.Join(r.Dir, "weir.yaml"), "there")
	w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	weirtest.RigBeside(t, w, r.API).Store().CheckLeftovers(notBefore)
}

// leftRig is a weir that died, with a job in every state, and the times before which they must not be called.
func leftRig(t *testing.T) (r *weirtest.Rig, notBefore map[string]time.Time) {
	t.Helper()
	orders := map[string][]string{}
	for i, c := range store.Leftovers {
		orders[fmt.Sprintf("safe-%d", i)], orders[fmt.Sprintf("once-%d", i)] = c.Orders, c.Orders
	}
	api := weirtest.StartOrdered(t, orders)
	r = weirtest.RigOn(t, api, fmt.Sprintf(weirtest.OutcomeYAML, api.URL(), "127.0.0.1:1", "127.0.0.1:1"))
	r.Stop()
	notBefore = map[string]time.Time{}
	r.Offline(func(o *store.Offline) {
		for i, c := range store.Leftovers {
			for _, api := range []string{"safe", "once"} {
				key := fmt.Sprintf("%s-%d", api, i)
				notBefore[key] = o.Leave(api, key, c)
			}
		}
		for _, api := range []string{"safe", "once"} { // of jobs that are gone
			o.Put(store.QueueName(api, 0, "i", "gone"), "", []queue.Intent{{Seq: 1 << 40, Call: 1}}, nil)
			o.Put(store.QueueName(api, 0, "r", "gone"), "", queue.RetryMark{Seq: 1 << 40, Calls: 1}, nil)
		}
	})
	return r, notBefore
}
