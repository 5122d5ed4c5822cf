package limits

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

var verifiedYAML = `
apis:
  pay:
    url: %s
    price: 0.50
    bucket: {rate: 50/s, capacity: 100}
    limits:
      - {name: account, rate: 80/s}
      - {name: few, in_flight: 3}
      - {name: spend, budget: 20.00/day, tz: ` + machine.Noon() + `, on_exhausted: dead_letter}
    keys: {vip: {rate: 60/s}}
    jitter: 20ms
`

// TestVerify holds a real run's ledger against the limits, and then one with planted calls.
func TestVerify(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, verifiedYAML)
	if _, code := r.CLI().Verify(); code != cli.ExitNotFound {
		t.Errorf("an empty ledger gives exit code %d", code)
	}
	for i := range 60 {
		key := []string{"vip", "k1", "k2"}[i%3]
		r.Producer().Submit("weir.jobs.pay."+key, nil, map[string]string{"Weir-Path": "/" + key})
	}
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	found, code := r.CLI().Verify()
	v := found["pay"]
	t.Logf("%+v", v)
	if code != 0 || v.Verdict != bucket.Pass || v.Calls != 40 || v.Keys != 3 || v.BilledYes != "20.00" || v.Repeats != 0 {
		t.Errorf("a run that kept its limits: exit code %d, %+v", code, v)
	}
	if l := program.LimitFound(t, v, "spend"); l.Worst != 20_000_000 || l.Allowed != 20_000_000 {
		t.Errorf("the budget is said to be used by %d of %d", l.Worst, l.Allowed)
	}
	if _, code := r.CLI().Verify("--api", "nowhere"); code != cli.ExitNotFound {
		t.Errorf("an unknown api gives exit code %d", code)
	}

	at := time.Now().UTC().Add(time.Second)
	for i := range uint64(3) {
		r.Store().Record(ledger.Record{
			API: "pay", Key: "k3", Job: "j", Stream: "WEIR_pay_0", Seq: 100_000 + i, Call: 1, Attempt: 1, Planned: at, Started: at,
			Ended: at.Add(time.Microsecond), Sent: true, Status: 200, Outcome: ledger.Done, Final: true, Price: "0.50",
			Billed: deadletter.BilledYes, Limits: []string{"account", "few", "spend"}, Costs: []int64{1, 1, 0},
		})
		at = at.Add(time.Millisecond)
	}
	found, code = r.CLI().Verify()
	v = found["pay"]
	rate, few := program.LimitFound(t, v, "bucket.rate"), program.LimitFound(t, v, "few")
	if code != cli.ExitFailed || v.Verdict != bucket.Fail || rate.Verdict != bucket.Fail || rate.Key != "k3" || few.Verdict != bucket.Pass {
		t.Errorf("three calls at once are not found: exit code %d, %+v", code, v)
	}
	if found, code := r.CLI().Verify("--since", at.Add(time.Hour).Format(time.RFC3339)); code != cli.ExitNotFound {
		t.Errorf("calls of the future: exit code %d, %+v", code, found)
	}
}

// TestVerifyFindsCallsAfterDoubt plants a second call of a job that may have been processed.
func TestVerifyFindsCallsAfterDoubt(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, verifiedYAML)
	now := time.Now().UTC()
	for i, c := range []struct {
		seq     uint64
		call    int
		outcome string
		sent    bool
		keyed   string
		repeats int
		unkeyed int
	}{
		{1, 1, ledger.PushedBack, true, "", 0, 0},
		{1, 2, "retry", false, "", 0, 0},
		{1, 3, ledger.Done, true, "", 0, 0},
		{3, 1, "retry", true, "Key@a", 0, 0},
		{3, 2, ledger.Done, true, "Key@a", 1, 0},
		{2, 1, string(deadletter.Unknown), true, "", 1, 0},
		{2, 2, ledger.Done, true, "", 2, 1},
		{4, 1, "retry", true, "Key@a", 2, 1},
		{4, 2, ledger.Done, true, "Key@b", 3, 2},
	} {
		at := now.Add(time.Duration(i) * time.Second)
		r.Store().Record(ledger.Record{
			API: "pay", Key: "k", Job: fmt.Sprint("j", c.seq), Stream: "WEIR_pay_0", Seq: c.seq, Call: c.call, Planned: at, Started: at,
			Ended: at.Add(time.Millisecond), Sent: c.sent, Outcome: c.outcome, Price: "0.50", Billed: deadletter.BilledUnknown,
			Idempotency: c.keyed, Limits: []string{"account", "few", "spend"}, Costs: []int64{1, 1, 1},
		})
		found, code := r.CLI().Verify()
		v := found["pay"]
		if v.Repeats != c.repeats || v.Unkeyed != c.unkeyed || (code == cli.ExitFailed) != (c.unkeyed > 0) {
			t.Errorf("call %d of job %d: exit code %d, %d repeats, %d without their key", c.call, c.seq, code, v.Repeats, v.Unkeyed)
		}
		if c.unkeyed > 0 && (len(v.Repeated) != c.unkeyed || v.Repeated[0].Job != "j2" || v.Repeated[0].Before != string(deadletter.Unknown)) {
			t.Errorf("told as %+v", v.Repeated)
		}
	}
}

// TestVerifyBeginsWhenLimitsChanged: a lower limit says nothing about the calls before it.
func TestVerifyBeginsWhenLimitsChanged(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "100/s"))
	r.Producer().SubmitMany("pay", "k", 10)
	r.AwaitCalls(10)
	r.Eventually("the ledger", func() bool { return r.Store().Messages("WEIR_CALLS") == 10 })
	r.Follow(fmt.Sprintf(oneAPI, "1/s"))
	if found, code := r.CLI().Verify(); code != cli.ExitNotFound {
		t.Errorf("calls of the former limit are held against the present one: exit code %d, %+v", code, found)
	}
	if _, code := r.CLI().Verify("--since", "1h"); code != cli.ExitFailed {
		t.Errorf("calls that --since asks for: exit code %d", code)
	}
}
