package jobs

import (
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestDuplicateHearsOfAnEndAfterARestart: a job waits, and comes again with another reply subject. weir restarts before
// the job ends. The duplicate's subject gets the end too.
func TestDuplicateHearsOfAnEndAfterARestart(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 100/s, capacity: 50}\n")
	t.Cleanup(r.Stop)
	r.Start()
	r.CLI().Must("pause", "pay")
	for _, replyTo := range []string{"_INBOX.first", "_INBOX.second"} {
		r.Producer().Send("pay", "k", nats.Header{"Nats-Msg-Id": {"one"}, "Weir-Reply-To": {replyTo}}, "a job")
	}
	r.Eventually("the duplicate is noted", func() bool {
		keys, err := r.Control().Keys(t.Context())
		return err == nil && strings.Contains(strings.Join(keys, " "), "again.")
	})
	r.Stop()
	r.Start()
	ends := make(chan *nats.Msg, 4)
	if _, err := r.NC.ChanSubscribe("_INBOX.*", ends); err != nil {
		t.Fatal(err)
	}
	if err := r.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	r.CLI().Must("resume", "pay")
	told := map[string]string{}
	for range 2 {
		m := await.Receive(t, "an end", ends)
		told[m.Subject] = m.Header.Get("Weir-Outcome")
	}
	if told["_INBOX.first"] != "done" || told["_INBOX.second"] != "done" || len(r.API.All()) != 1 {
		t.Errorf("told %v after %d calls", told, len(r.API.All()))
	}
}
