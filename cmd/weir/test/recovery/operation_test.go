package recovery

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
	"weir/ingest/await"
)

const operationYAML = `
apis:
  pay:
    url: %s/v1
    price: 0.40
    bucket: {rate: 50/s, capacity: 100, in_flight: 4}
    operation:
      poll: {path: "{answer-header:Location}", every: 1s, rate: 100/s}
      answers:
        - {status: 200, json: /state, values: [done], means: done}
        - {status: 200, means: running}
`

// operationKillRig is a weir in a process of its own, whose api begins the operations of o.
func operationKillRig(t *testing.T, o *fakeapi.Operations, env ...string) *weirtest.KillRig {
	t.Helper()
	return weirtest.NewKillRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}, Script: o.Script}, operationYAML, env...)
}

// checkOperations checks that each operation was submitted once, and that its job has a result and no letter.
func checkOperations(r *weirtest.KillRig, o *fakeapi.Operations, names ...string) {
	r.T.Helper()
	ends := r.Outcomes()
	for _, name := range names {
		if n := o.Submitted(name); n != 1 {
			r.T.Errorf("%s was submitted %d times", name, n)
		}
		if got := ends["job-"+name]; len(got) != 1 || got[0] != ledger.Done {
			r.T.Errorf("%s ended as %v", name, got)
		}
	}
}

// TestKilledWhilePolling: weir is killed while operations go on, and once more right after its start. It goes on
// polling, and submits nothing again.
func TestKilledWhilePolling(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	var names []string
	for i := range 6 {
		names = append(names, fmt.Sprintf("o%d", i))
		o.Hold(names[i])
	}
	r := operationKillRig(t, o)
	for _, name := range names {
		r.Publish(t.Context(), "weir.jobs.pay."+name, "job-"+name, []byte("job-"+name))
	}
	await.Until(t, "a poll of each", func() bool {
		for _, name := range names {
			if o.Polled(name) == 0 {
				return false
			}
		}
		return true
	})
	r.Proc.Kill()
	r.Start()
	r.Proc.Kill()
	for _, name := range names {
		o.Finish(name)
	}
	r.Start()
	r.AwaitEmpty()
	checkOperations(r, o, names...)
	for _, c := range store.RecordsOf(t, servers.JetStreamOf(t, r.NC)) {
		if !c.Polled && (c.Outcome != ledger.Submitted || c.Price != "0.40") || c.Polled && c.Price != "0.00" {
			t.Errorf("%+v", c)
		}
	}
	if got := program.Command(t, r.Env, "spend"); got.Code != 0 || !strings.Contains(got.Stdout, "2.40") {
		t.Errorf("%+v", got)
	}
}

// TestKilledBeforeTheFirstPoll: weir is killed when a call is recorded as accepted and its operation was never polled.
// The next start polls it, and does not submit it again.
func TestKilledBeforeTheFirstPoll(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	r := weirtest.NewKillRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}, Script: o.Script}, strings.Replace(operationYAML, "every: 1s", "every: 1h", 1))
	r.Publish(t.Context(), "weir.jobs.pay.one", "job-one", []byte("job-one"))
	js := servers.JetStreamOf(t, r.NC)
	await.Until(t, "the record of its call", func() bool { return len(store.RecordsOf(t, js)) == 1 })
	r.Proc.Kill()
	if n := o.Polled("one"); n != 0 {
		t.Fatalf("polled %d times", n)
	}
	weirtest.WriteFile(t, strings.TrimPrefix(r.Env[0], "WEIR_CONFIG="), fmt.Sprintf(operationYAML, r.API.URL()))
	r.Start()
	r.AwaitEmpty()
	checkOperations(r, o, "one")
}

// TestKilledDuringTheSubmissionUnderAKey: weir is killed while a call is under way whose answer would have begun an
// operation. If the api takes keys, the next start makes the call again under the same key, and polls what that began.
func TestKilledDuringTheSubmissionUnderAKey(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	sent := make(chan struct{})
	script := func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
		b := o.Script(ctx, q)
		if q.Method == http.MethodPost && o.Submitted("one") == 1 {
			close(sent)
			b.Delay = time.Minute
		}
		return b
	}
	yaml := strings.Replace(operationYAML, "    price:", "    idempotency: {header: Idempotency-Key}\n    price:", 1)
	r := weirtest.NewKillRig(t, fakeapi.Options{Headers: []string{"Idempotency-Key"}, Key: fakeapi.KeyFrom{Segment: -1}, Script: script}, yaml)
	r.Publish(t.Context(), "weir.jobs.pay.one", "job-one", []byte("job-one"))
	await.Receive(t, "the call", sent)
	r.Proc.Kill()
	r.Start()
	r.AwaitEmpty()
	if got := r.Outcomes()["job-one"]; len(got) != 1 || got[0] != ledger.Done || o.Submitted("one") != 2 || o.Polled("one") == 0 {
		t.Errorf("ended as %v, submitted %d times, polled %d times", got, o.Submitted("one"), o.Polled("one"))
	}
	for _, a := range r.API.All() {
		if key := a.Header("Idempotency-Key"); a.Method == http.MethodPost && key != "job-one" {
			t.Errorf("submitted under the key %q", key)
		}
	}
}

// TestKilledDuringTheSubmission: weir is killed while a call is under way whose answer would have begun an operation.
// As any lost call it is unknown, and is not made again.
func TestKilledDuringTheSubmission(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	sent := make(chan struct{})
	script := func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
		b := o.Script(ctx, q)
		if q.Method == http.MethodPost {
			close(sent)
			b.Delay = time.Minute
		}
		return b
	}
	r := weirtest.NewKillRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}, Script: script}, operationYAML)
	r.Publish(t.Context(), "weir.jobs.pay.one", "job-one", []byte("job-one"))
	await.Receive(t, "the call", sent)
	r.Proc.Kill()
	r.Start()
	r.AwaitEmpty()
	if got := r.Outcomes()["job-one"]; len(got) != 1 || got[0] != "unknown" || o.Submitted("one") != 1 {
		t.Errorf("ended as %v, submitted %d times", got, o.Submitted("one"))
	}
}
