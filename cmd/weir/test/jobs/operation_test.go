package jobs

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/joblist"
	"weir/cmd/weir/weirtest"
	"weir/dispatcher/ledger"
)

const operationConfig = `
apis:
  pay:
    url: %s/v1
    price: 0.50
    timeout: 10s
    headers: {Authorization: "Bearer ${env:PAY_TOKEN}"}
    bucket: {rate: 100/s, capacity: 100}
    limits: [{name: one, in_flight: 1}, {name: spend, budget: 100/day, tz: UTC}]
    operation:
      poll: {path: "{answer-header:Location}", every: 1s, rate: 100/s, for: FOR}
      answers:
        - {status: 200, json: /state, values: [done], means: done}
        - {status: 200, json: /state, values: [failed], means: failed}
        - {status: 200, json: /state, values: [running], means: running}
      result: json:/output
      MORE
`

// operationRig is a weir whose api begins the operations of o. They are polled for a time, and the configuration of the
// operation has more.
func operationRig(t *testing.T, o *fakeapi.Operations, polled, more string) *weirtest.Rig {
	t.Helper()
	r := weirtest.ReadyRig(t, fakeapi.Options{Headers: []string{"Authorization"}, Script: o.Script}, "")
	r.YAML = fmt.Sprintf(strings.NewReplacer("FOR", polled, "MORE", more).Replace(operationConfig), r.API.URL())
	r.Start()
	t.Cleanup(r.Stop)
	return r
}

// recordsOf returns the outcomes of a key's records.
func recordsOf(r *weirtest.Rig, key string) (outcomes []string) {
	for _, c := range r.Store().Ledger("pay", key) {
		outcomes = append(outcomes, c.Outcome)
	}
	return outcomes
}

// TestOperation: a call that the api accepts is polled until its operation is done. The result is the part of the final
// answer that the configuration names. The call is made, billed and counted once.
func TestOperation(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{Polls: 1}
	r := operationRig(t, o, "1h", "")
	ends, err := r.NC.SubscribeSync("_INBOX.mine.>")
	if err != nil {
		t.Fatal(err)
	}
	r.Producer().Order("k", "first")
	r.Store().Ended("pay", "k", 1)
	results := r.Store().Results("pay", "k")
	if len(results) != 1 || string(results[0].Data) != `{"of":"first"}` {
		t.Fatalf("%d results: %v", len(results), results)
	}
	if h := results[0].Header; h.Get("Weir-Outcome") != ledger.Done || h.Get("Weir-Price") != "0.50" || h.Get("Weir-Calls") != "1" ||
		h.Get("Weir-Status") != "200" || h.Get("Weir-Called-At") == "" || h.Get("Content-Type") != "application/json" {
		t.Errorf("the result is %v", h)
	}
	records := r.Store().Ledger("pay", "k")
	if len(records) != 2 {
		t.Fatalf("%+v", records)
	}
	if c := records[0]; c.Outcome != ledger.Submitted || c.Final || c.Price != "0.50" || c.Billed != "yes" || c.Status != http.StatusAccepted || c.Polled ||
		c.Operation == nil || c.Operation.Address != r.API.URL()+"/operations/first" || fmt.Sprint(c.Costs) != "[1 500000]" {
		t.Errorf("the record of the call is %+v", c)
	}
	if c := records[1]; c.Outcome != ledger.Done || !c.Final || c.Price != "0.00" || !c.Polled || c.Call != 1 || fmt.Sprint(c.Costs) != "[0 0]" {
		t.Errorf("the record of the operation's end is %+v", c)
	}
	msg, err := ends.NextMsg(weirtest.Patience)
	if err != nil || string(msg.Data) != `{"of":"first"}` {
		t.Errorf("the producer was told %v: %v", msg, err)
	}
	if o.Submitted("first") != 1 || o.Polled("first") != 2 {
		t.Errorf("submitted %d times, polled %d times", o.Submitted("first"), o.Polled("first"))
	}
	for _, a := range r.API.All() {
		if a.Header("Authorization") != "Bearer secret-token" {
			t.Errorf("%s %s came without credentials", a.Method, a.Path)
		}
	}
	if out, code := r.CLI().Run("spend", "--json"); code != 0 || !strings.Contains(out, `0.50`) || strings.Contains(out, "1.00") {
		t.Errorf("spend says %s", out)
	}
	if out, code := r.CLI().Run("verify", "--json"); code != 0 {
		t.Errorf("verify says %s", out)
	}
	out, _ := r.CLI().Run("job", "first")
	for _, text := range []string{"submitted", "polled", "done"} {
		if !strings.Contains(out, text) {
			t.Errorf("job does not say %q:\n%s", text, out)
		}
	}
	if text := r.HTTP().Get("/metrics"); !strings.Contains(text, `weir_operation_polls_total{api="pay",outcome="running"} 1`) ||
		!strings.Contains(text, `weir_operation_polls_total{api="pay",outcome="done"} 1`) || !strings.Contains(text, `weir_operations{api="pay"} 0`) ||
		!strings.Contains(text, `weir_calls_total{api="pay",outcome="submitted"} 1`) {
		t.Errorf("the metrics are\n%s", text)
	}
}

// TestOperationFails: a failed operation makes a letter with the api's answer, whose call stays billed.
func TestOperationFails(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{EndState: func(string) string { return "failed" }}
	r := operationRig(t, o, "1h", "")
	r.Producer().Order("k", "bad")
	r.Store().Ended("pay", "k", 1)
	letters := r.Store().Letters("pay", "k")
	if len(letters) != 1 || len(r.Store().Results("pay", "k")) != 0 {
		t.Fatalf("%d letters, %d results", len(letters), len(r.Store().Results("pay", "k")))
	}
	h := letters[0].Header
	if h.Get("Weir-Dead-Reason") != "rejected" || h.Get("Weir-Dead-Billed") != "yes" || !strings.Contains(h.Get("Weir-Dead-Detail"), "the operation failed") ||
		h.Get("Weir-Dead-Operation") != r.API.URL()+"/operations/bad" {
		t.Errorf("the letter is %v", h)
	}
	out, _ := r.CLI().Run("dead", "show", fmt.Sprint(letters[0].Sequence))
	if !strings.Contains(out, `"state":"failed"`) || !strings.Contains(out, "operation") {
		t.Errorf("the letter is shown as\n%s", out)
	}
	if got := recordsOf(r, "k"); fmt.Sprint(got) != "[submitted rejected]" || o.Submitted("bad") != 1 {
		t.Errorf("records %v, submitted %d times", got, o.Submitted("bad"))
	}
}

// TestOperationUnclear: an answer that the configuration does not explain does not end an operation.
func TestOperationUnclear(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{Answer: func(_ string, poll int) (fakeapi.Behaviour, bool) {
		switch poll {
		case 1:
			return fakeapi.Behaviour{Status: http.StatusNotFound}, true
		case 2:
			return fakeapi.Behaviour{Fault: fakeapi.FaultResetHeader}, true
		}
		return fakeapi.Behaviour{}, false
	}}
	r := operationRig(t, o, "1h", "")
	r.Producer().Order("k", "slow")
	r.Store().Ended("pay", "k", 1)
	if len(r.Store().Results("pay", "k")) != 1 || o.Submitted("slow") != 1 || o.Polled("slow") != 3 {
		t.Errorf("%d results, submitted %d times, polled %d times", len(r.Store().Results("pay", "k")), o.Submitted("slow"), o.Polled("slow"))
	}
}

// TestOperationTakesTooLong: an operation that does not end in time makes a letter unknown with its address. The
// address is asked by dead reconcile, also after the operation has ended.
func TestOperationTakesTooLong(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	o.Hold("long")
	r := operationRig(t, o, "2s", "")
	r.Producer().Order("k", "long")
	r.Store().Ended("pay", "k", 1)
	letters := r.Store().Letters("pay", "k")
	if len(letters) != 1 {
		t.Fatalf("%d letters", len(letters))
	}
	if h := letters[0].Header; h.Get("Weir-Dead-Reason") != "unknown" || h.Get("Weir-Dead-Billed") != "yes" ||
		h.Get("Weir-Dead-Operation") != r.API.URL()+"/operations/long" || !strings.Contains(h.Get("Weir-Dead-Detail"), "not ended within 2s") {
		t.Errorf("the letter is %v", h)
	}
	if did, code := r.CLI().Reconcile("--api", "pay"); code != 0 || did.Stays != 1 || did.Each[0].Finding != "running" {
		t.Errorf("while it runs: exit code %d, %+v", code, did)
	}
	o.Finish("long")
	if did, code := r.CLI().Reconcile("--api", "pay"); code != 0 || did.Done != 1 {
		t.Errorf("when it is done: exit code %d, %+v", code, did)
	}
	results := r.Store().Results("pay", "k")
	if len(results) != 1 || string(results[0].Data) != `{"of":"long"}` || results[0].Header.Get("Weir-Price") != "0.50" || len(r.Store().Letters("pay", "k")) != 0 {
		t.Errorf("results %v, %d letters", results, len(r.Store().Letters("pay", "k")))
	}
	if o.Submitted("long") != 1 {
		t.Errorf("submitted %d times", o.Submitted("long"))
	}
}

// TestOperationCancelled: an operator may cancel a job that is polled. The api is told if the configuration says how.
// An operation that is done by then ends its job with a result.
func TestOperationCancelled(t *testing.T) {
	t.Parallel()
	for more, told := range map[string]bool{"cancel: {method: DELETE}": true, "hold_slot: false": false} {
		o := &fakeapi.Operations{}
		for _, name := range []string{"running", "done"} {
			o.Hold(name)
		}
		r := operationRig(t, o, "1h", more)
		for _, name := range []string{"running", "done"} {
			r.Producer().Order("k", name)
			r.Eventually("a poll of "+name, func() bool { return o.Polled(name) > 0 })
		}
		if polled := jobsOf(r, "state=polling").Jobs; len(polled) != 2 || polled[0].State != joblist.Polling || polled[0].Calls != 1 {
			t.Errorf("the jobs that are polled are %+v", polled)
		}
		if waiting := jobsOf(r, "state=waiting").Jobs; len(waiting) != 0 {
			t.Errorf("jobs that are polled are listed as waiting: %+v", waiting)
		}
		if out, code := r.CLI().Run("jobs", "--state", "polling", "--key", "k"); code != 0 || strings.Contains(out, "waiting") {
			t.Errorf("jobs said %s", out)
		}
		o.Finish("done")
		if out, code := r.CLI().Run("cancel", "pay", "running"); code != 0 {
			t.Errorf("cancel said %s", out)
		}
		r.CLI().Run("cancel", "pay", "done") // whichever comes first, it has one end
		r.Store().Ended("pay", "k", 2)
		letters := r.Store().Letters("pay", "k")
		if len(letters) != 1 || len(r.Store().Results("pay", "k")) != 1 {
			t.Fatalf("%d letters and %d results", len(letters), len(r.Store().Results("pay", "k")))
		}
		h, says := letters[0].Header, "goes on"
		if told {
			says = "was told to cancel its operation, and answered 200"
		}
		if h.Get("Weir-Job-Id") != "running" || h.Get("Weir-Dead-Reason") != "cancelled" || h.Get("Weir-Dead-Billed") != "yes" ||
			!strings.Contains(h.Get("Weir-Dead-Detail"), says) || (o.Cancelled("running") == 1) != told {
			t.Errorf("the letter is %v, and the api was told %d times", h, o.Cancelled("running"))
		}
		if o.Submitted("running") != 1 || o.Submitted("done") != 1 {
			t.Errorf("submitted %d and %d times", o.Submitted("running"), o.Submitted("done"))
		}
	}
}

// TestOperationElsewhere: nothing is sent to a host that the configuration does not name. The job becomes a letter, and
// is not called again.
func TestOperationElsewhere(t *testing.T) {
	t.Parallel()
	other, err := fakeapi.Start(fakeapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() }) // nothing has come
	o := &fakeapi.Operations{Location: func(name string) string { return other.URL() + "/" + name }}
	r := operationRig(t, o, "1h", "")
	r.Producer().Order("k", "away")
	r.Store().Ended("pay", "k", 1)
	letters := r.Store().Letters("pay", "k")
	if len(letters) != 1 {
		t.Fatalf("%d letters", len(letters))
	}
	if h := letters[0].Header; h.Get("Weir-Dead-Reason") != "unknown" || h.Get("Weir-Dead-Billed") != "yes" || !strings.Contains(h.Get("Weir-Dead-Detail"), "not the api's host") {
		t.Errorf("the letter is %v", h)
	}
	if n := len(other.All()); n != 0 || o.Submitted("away") != 1 {
		t.Errorf("%d requests to another host, submitted %d times", n, o.Submitted("away"))
	}
}

// TestOperationOfFormerConfiguration: while the configuration has no operation any more, the jobs wait. They are polled
// again when it is put back, and are never submitted again.
func TestOperationOfFormerConfiguration(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	o.Hold("former")
	r := operationRig(t, o, "1h", "")
	r.Producer().Order("k", "former")
	r.Eventually("a poll", func() bool { return o.Polled("former") > 0 })
	out, _ := r.CLI().Run("show", "pay", "k")
	if !strings.Contains(out, "polling") {
		t.Errorf("show does not say that it is polled:\n%s", out)
	}
	r.Stop()
	with := r.YAML
	r.YAML = with[:strings.Index(with, "    operation:")]
	o.Finish("former")
	r.Start()
	r.Producer().Order("other", "direct") // its answer ends it now
	r.Store().Ended("pay", "other", 1)
	if n := len(r.Store().Results("pay", "k")) + len(r.Store().Letters("pay", "k")); n != 0 || r.Store().Depth("pay", "k") != 1 {
		t.Errorf("%d ends of a job that nothing says how to poll, %d wait", n, r.Store().Depth("pay", "k"))
	}
	r.Stop()
	r.YAML = with
	r.Start()
	r.Store().Ended("pay", "k", 1)
	if len(r.Store().Results("pay", "k")) != 1 || o.Submitted("former") != 1 {
		t.Errorf("%d results, submitted %d times", len(r.Store().Results("pay", "k")), o.Submitted("former"))
	}
}

// TestOperationHoldsItsSlot: an operation that holds its slot keeps other keys from being called until it has ended,
// also after a restart.
func TestOperationHoldsItsSlot(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	o.Hold("first")
	r := operationRig(t, o, "1h", "hold_slot: true")
	r.Producer().Order("k", "first")
	r.Eventually("a poll", func() bool { return o.Polled("first") > 0 })
	r.Producer().Order("other", "second")
	for range 2 {
		polls := o.Polled("first")
		r.Eventually("another poll", func() bool { return o.Polled("first") > polls })
		if n := o.Submitted("second"); n != 0 {
			t.Fatalf("the second job was called %d times beside an operation that holds the only slot", n)
		}
		r.Stop()
		r.Start()
	}
	o.Finish("first")
	r.Store().Ended("pay", "k", 1)
	r.Store().Ended("pay", "other", 1)
	if o.Submitted("first") != 1 || o.Submitted("second") != 1 {
		t.Errorf("submitted %d and %d times", o.Submitted("first"), o.Submitted("second"))
	}
}

// TestOperationHoldsItsReplicasSlot checks that no other call starts while weir stores that the api has accepted a call
// whose operation holds the only slot of a limit that each replica has for itself.
func TestOperationHoldsItsReplicasSlot(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	jobs := []string{"a", "b", "c", "d", "e", "f"}
	for _, job := range jobs {
		o.Hold(job)
	}
	submitted := func() (all int) {
		for _, job := range jobs {
			all += o.Submitted(job)
		}
		return all
	}
	r := weirtest.ReadyRig(t, fakeapi.Options{Headers: []string{"Authorization"}, Script: o.Script}, "")
	own := strings.Replace(operationConfig, "in_flight: 1}", "in_flight: 1, per: replica}", 1)
	r.YAML = fmt.Sprintf(strings.NewReplacer("FOR", "1h", "MORE", "hold_slot: true").Replace(own), r.API.URL())
	r.Start()
	t.Cleanup(r.Stop)
	for _, job := range jobs { // a key each, so that only the replica's limit holds them up
		r.Producer().Order(job, job)
	}
	for n, left := 1, slices.Clone(jobs); n <= len(jobs); n++ {
		r.Eventually("a poll of what was submitted", func() bool {
			return submitted() >= n && !slices.ContainsFunc(left, func(job string) bool { return o.Submitted(job) > 0 && o.Polled(job) == 0 })
		})
		if all := submitted(); all != n {
			t.Fatalf("%d submitted beside %d that have ended: one may run", all, n-1)
		}
		i := slices.IndexFunc(left, func(job string) bool { return o.Submitted(job) > 0 })
		o.Finish(left[i])
		r.Store().Ended("pay", left[i], 1)
		left = slices.Delete(left, i, i+1)
	}
}

// TestOperationDoesNotHoldItsSlot: without that, jobs of the key go on at their key's rate while an operation runs.
func TestOperationDoesNotHoldItsSlot(t *testing.T) {
	t.Parallel()
	o := &fakeapi.Operations{}
	o.Hold("first")
	r := operationRig(t, o, "1h", "")
	r.Producer().Order("k", "first")
	r.Producer().Order("k", "second")
	r.Eventually("the second result", func() bool { return len(r.Store().Results("pay", "k")) == 1 })
	o.Finish("first")
	r.Store().Ended("pay", "k", 2)
	if began := r.Store().Results("pay", "k"); len(began) != 2 || began[0].Header.Get("Weir-Job-Id") != "second" {
		t.Errorf("%v", began)
	}
	if o.Submitted("first") != 1 || o.Submitted("second") != 1 {
		t.Errorf("submitted %d and %d times", o.Submitted("first"), o.Submitted("second"))
	}
}
