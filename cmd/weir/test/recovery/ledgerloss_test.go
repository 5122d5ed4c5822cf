package recovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
)

// TestDamagedLedgerIsTold: one record of the ledger is damaged while weir is stopped, so that the server discards all
// records behind it. The log, the event, the status, spend and verify report it, and the budget counts what was called.
func TestDamagedLedgerIsTold(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    price: 1.00\n    bucket: {rate: 100/s, burst: 10, capacity: 50}\n"+
		"    limits: [{name: spend, budget: 10.00/month, tz: "+machine.Noon()+"}]\n")
	t.Cleanup(r.Stop)
	r.Start()
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		r.Producer().Send("pay", key, nil, "the body of "+key)
	}
	r.AwaitCalls(8)
	r.Eventually("all are recorded", func() bool { return len(r.Store().Stored("WEIR_CALLS", "weir.calls.>")) == 8 })
	r.Eventually("that is noted", func() bool {
		noted := r.Store().Stored("KV_weir_control", "$KV.weir_control.ledger")
		return len(noted) == 1 && strings.Contains(string(noted[0].Data), `"last":8`)
	})
	r.Stop()
	stream := filepath.Join(r.Settings().DataDir, "jetstream")
	natstest.Spoil(t, stream[:len(stream)-len("/jetstream")], "WEIR_CALLS", `"key":"c"`)
	indexes, err := filepath.Glob(filepath.Join(stream, "*", "streams", "WEIR_CALLS", "msgs", "index.db"))
	if err != nil || len(indexes) != 1 {
		t.Fatal(indexes, err)
	}
	if err := os.Remove(indexes[0]); err != nil { // as a kill leaves it
		t.Fatal(err)
	}
	r.Start()
	r.Eventually("the event", func() bool { return len(r.Store().Stored("WEIR_EVENTS", "weir.events.ledger.>")) == 1 })
	if out, code := r.CLI().Run("status"); code != 1 || !strings.Contains(out, "of the ledger (WEIR_CALLS)") {
		t.Errorf("status ends with %d: %s", code, out)
	}
	if out, code := r.CLI().Run("verify"); code != 3 {
		t.Errorf("verify ends with %d: %s", code, out)
	}
	for _, key := range []string{"k", "l", "m", "n"} {
		r.Producer().Send("pay", key, nil, "after")
	}
	r.Eventually("the budget holds the api", func() bool {
		return len(r.Store().Stored("WEIR_EVENTS", "weir.events.held.pay._")) == 1
	})
	if n := len(r.API.All()); n > 10 {
		t.Errorf("%d calls of 10", n)
	}
}
