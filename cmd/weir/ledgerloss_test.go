package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/internal/fakeapi"
)

// TestDamagedLedgerIsTold: one record of the ledger is damaged while weir is stopped, so that its server gives up all that stand behind it.
// The log, the event, the status, spend and verify tell of it, and the budget counts what was called.
func TestDamagedLedgerIsTold(t *testing.T) {
	t.Parallel()
	r := readyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    price: 1.00\n    bucket: {rate: 100/s, burst: 10, capacity: 50}\n"+
		"    limits: [{name: spend, budget: 10.00/month}]\n")
	t.Cleanup(r.stop)
	r.start()
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		r.send("pay", key, nil, "the body of "+key)
	}
	r.awaitCalls(8)
	r.eventually("all are recorded", func() bool { return len(r.stored("WEIR_CALLS", "weir.calls.>")) == 8 })
	r.eventually("that is noted", func() bool {
		noted := r.stored("KV_weir_control", "$KV.weir_control.ledger")
		return len(noted) == 1 && strings.Contains(string(noted[0].Data), `"last":8`)
	})
	r.stop()
	stream := filepath.Join(r.settings().DataDir, "jetstream")
	natstest.Spoil(t, stream[:len(stream)-len("/jetstream")], "WEIR_CALLS", `"key":"c"`)
	indexes, err := filepath.Glob(filepath.Join(stream, "*", "streams", "WEIR_CALLS", "msgs", "index.db"))
	if err != nil || len(indexes) != 1 {
		t.Fatal(indexes, err)
	}
	if err := os.Remove(indexes[0]); err != nil { // as a kill leaves it
		t.Fatal(err)
	}
	r.start()
	r.eventually("the event", func() bool { return len(r.stored("WEIR_EVENTS", "weir.events.ledger.>")) == 1 })
	if out, code := r.command("status"); code != 1 || !strings.Contains(out, "of the ledger (WEIR_CALLS)") {
		t.Errorf("status ends with %d: %s", code, out)
	}
	if out, code := r.command("verify"); code != 3 {
		t.Errorf("verify ends with %d: %s", code, out)
	}
	for _, key := range []string{"k", "l", "m", "n"} {
		r.send("pay", key, nil, "after")
	}
	r.eventually("the budget holds the api", func() bool { return len(r.stored("WEIR_EVENTS", "weir.events.held.pay._")) == 1 })
	if n := len(r.api.All()); n > 10 {
		t.Errorf("%d calls of 10", n)
	}
}
