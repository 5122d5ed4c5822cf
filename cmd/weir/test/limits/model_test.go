package limits

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/deadletter"

	"github.com/nats-io/nats.go"
)

// sendModelJobs submits jobs of five keys, each with its estimate.
func sendModelJobs(r *weirtest.Rig, n int, path, estimate, body string) {
	r.T.Helper()
	jobs := make([]*nats.Msg, n)
	for i := range jobs {
		jobs[i] = producer.JobFor("pay", "k"+strconv.Itoa(i%5), body)
		jobs[i].Header.Set("Weir-Path", path)
		jobs[i].Header.Set("Weir-Cost", estimate)
	}
	producer.FillTaken(r.T, r.NC, jobs)
}

// modelYAML returns a vendor's configuration with further lines, and with prices for the tokens that answers report.
func modelYAML(vendor fakeapi.Vendor, lines ...string) string {
	written := ""
	if vendor == fakeapi.Anthropic {
		written = ", {each: 4, per: 1000000, from: 0, settle: usage:cache_creation_input_tokens}"
	}
	return vendorYAML(vendor, append([]string{
		"price: [{each: 3, per: 1000000, from: header:Weir-Cost, settle: usage:input_tokens}, " +
			"{each: 15, per: 1000000, from: json:/max_tokens, default: 20, settle: usage:output_tokens}" + written + "]",
	}, lines...)...)
}

// perHour returns a vendor's limit whose period is longer than any test.
func perHour(name string, count int64, weigh fakeapi.Weigh, most fakeapi.MaxTokens) fakeapi.UseLimit {
	return fakeapi.UseLimit{Name: name, Count: count, Per: time.Hour, Scope: fakeapi.AllKeys, Weigh: weigh, Max: most}
}

// TestModelLimits has models that refuse calls beyond their limits in tokens. Each model counts in its own way. It
// checks that weir, configured to count in the same way, makes every call that fits however many jobs wait, and that
// the model refuses no call.
func TestModelLimits(t *testing.T) {
	t.Parallel()
	const twenty, cached = `{"max_tokens":20}`, `{"max_tokens":20,"cache_control":{}}`
	for _, c := range []struct {
		what           string
		vendor         fakeapi.Vendor
		limits         []fakeapi.UseLimit
		ours           string
		path, estimate string
		body           string
		fits           int // calls that fit, by what each takes and the last one reserves
	}{
		{
			"input and output apart", fakeapi.Anthropic,
			[]fakeapi.UseLimit{
				perHour("input_tokens", 1000, fakeapi.Weigh{Input: 1}, ""),
				perHour("output_tokens", 100, fakeapi.Weigh{Output: 1}, ""),
			},
			"limits: [{name: input_tokens, quota: 1000/1h, window: sliding}, " +
				"{name: output_tokens, quota: 100/1h, window: sliding}]",
			"/v1/messages", "5", twenty, 9, // 10 each, and 20 reserved
		},
		{
			"an output token counts five, and max_tokens while the call runs", fakeapi.Bedrock,
			[]fakeapi.UseLimit{perHour("tokens", 1000, fakeapi.Weigh{Input: 1, Output: 5}, fakeapi.MaxRunning)},
			"limits: [{name: tokens, quota: 1000/1h, window: sliding, cost: [" +
				"{from: header:Weir-Cost, settle: usage:input_tokens}, " +
				"{from: json:/inferenceConfig/maxTokens, times: 5, settle: usage:output_tokens}]}]",
			"/model/claude/converse", "10", `{"inferenceConfig":{"maxTokens":20}}`, 15, // 60 each, and 110 reserved
		},
		{
			"max_tokens counts for good", fakeapi.OpenAI,
			[]fakeapi.UseLimit{perHour("tokens", 100, fakeapi.Weigh{Output: 1}, fakeapi.MaxAlways)},
			"limits: [{name: tokens, quota: 100/1h, window: sliding, cost: {from: json:/max_tokens}}]",
			"/v1/chat/completions", "5", twenty, 5,
		},
		{
			"tokens read from a cache do not count", fakeapi.Anthropic,
			[]fakeapi.UseLimit{perHour("input_tokens", 110, fakeapi.Weigh{Input: 1, Written: 1}, "")},
			"limits: [{name: input_tokens, quota: 110/1h, window: sliding}]",
			"/v1/messages", "22", cached, 5,
		},
		{
			"tokens read from a cache count", fakeapi.Anthropic,
			[]fakeapi.UseLimit{perHour("input_tokens", 116, fakeapi.Weigh{Input: 1, Written: 1, Read: 1}, "")},
			"limits: [{name: input_tokens, quota: 116/1h, window: sliding, cost: [" +
				"{from: header:Weir-Cost, settle: usage:input_tokens}, " +
				"{from: 0, settle: usage:cache_creation_input_tokens}, {from: 0, settle: usage:cache_read_input_tokens}]}]",
			"/v1/messages", "29", cached, 4,
		},
		{
			"a budget", fakeapi.OpenAI, nil, "limits: [{name: spend, budget: 0.002/1h, window: sliding}]",
			"/v1/chat/completions", "5", twenty, 11, // 165 millionths each, and 315 reserved
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			r := weirtest.NewRig(t, fakeapi.Options{
				Vendor: c.vendor, Limits: c.limits,
				Latency: fakeapi.Latency{Mean: 20 * time.Millisecond, Min: 20 * time.Millisecond},
			}, modelYAML(c.vendor, c.ours, "retry: {headers: ignore}")) // for tokens Anthropic's give only rounded thousands
			sendModelJobs(r, 25, c.path, c.estimate, c.body)
			r.Eventually("the calls that fit, and their records", func() bool {
				return r.Store().Messages("WEIR_CALLS") >= c.fits
			})
			weirtest.CheckBill(t, r.Worker.NATSURL(), fakeapi.Bills(r.API.All()))
			r.Stop()
			if totals := r.API.Totals(); totals.Billed != int64(c.fits) || totals.Arrivals != totals.Billed {
				t.Errorf("%d calls fit: %+v", c.fits, totals)
			}
		})
	}
}

// TestVendorsTokensLeft lets another program use most of an account's tokens: weir reads in the answers what is left,
// and the vendor refuses none of its calls.
func TestVendorsTokensLeft(t *testing.T) {
	t.Parallel()
	limit := perHour("tokens", 600, fakeapi.Weigh{Output: 1}, fakeapi.MaxAlways)
	limit.Per = time.Minute
	r := weirtest.NewRig(t, fakeapi.Options{
		Vendor: fakeapi.OpenAI, Key: fakeapi.KeyFrom{Segment: -1}, Limits: []fakeapi.UseLimit{limit},
	}, `
apis:
  pay:
    url: %s
    vendor: openai
    bucket: {rate: 1000/s, capacity: 50, in_flight: 1}
    limits: [{name: tokens, rate: 600/1m, burst: 200, cost: {from: json:/max_tokens}}]
    retry: {headers: ignore}
`)
	body := strings.NewReader(`{"max_tokens":550}`)
	others, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.API.URL()+"/other", body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(others)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	for i := range 5 {
		r.Producer().Send("pay", "k", nats.Header{"Nats-Msg-Id": {strconv.Itoa(i)}, "Weir-Path": {"/k"}}, `{"max_tokens":20}`)
	}
	r.Eventually("status to say what the vendor counts", func() bool {
		said, _ := r.CLI().Run("status")
		return strings.Contains(said, "the vendor counts ")
	})
	r.Eventually("the calls that are left", func() bool { return len(r.Store().Results("pay", "k")) >= 2 })
	if calls, totals := r.API.Arrivals("k"), r.API.Totals(); len(calls) != 2 || totals.Limited > 0 {
		t.Errorf("%d calls where 50 tokens are left: %+v", len(calls), totals)
	}
	if metrics := r.HTTP().Get("/metrics"); strings.Contains(metrics, `weir_left_unreadable_total{api="pay"`) {
		t.Error("a header could not be read")
	}
}

// TestRefusedCallsGiveBack checks that calls which an API refuses leave nothing reserved of a budget: later calls use
// up the whole budget.
func TestRefusedCallsGiveBack(t *testing.T) {
	t.Parallel()
	const refused = 6
	r := weirtest.NewRig(t, fakeapi.Options{
		Vendor: fakeapi.OpenAI, Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			switch {
			case q.Number <= refused/2:
				return fakeapi.Behaviour{Status: http.StatusBadRequest}
			case q.Number <= refused:
				return fakeapi.Behaviour{Status: http.StatusTooManyRequests, RetryAfter: "0"}
			}
			return fakeapi.OpenAI.Answer(q)
		},
	}, modelYAML(fakeapi.OpenAI,
		"limits: [{name: spend, budget: 0.0007/1h, window: sliding}]", "retry: {min: 5ms, max: 20ms}"))
	sendModelJobs(r, 20, "/v1/chat/completions", "5", `{"max_tokens":20}`) // 165 millionths each, and 315 reserved
	r.Eventually("the calls that the budget pays for", func() bool { return r.Store().Messages("WEIR_RESULTS") >= 3 })
	r.Stop()
	if totals := r.API.Totals(); totals.Billed != 3 || totals.Charged != 3*165 {
		t.Errorf("the budget pays for three calls: %+v", totals)
	}
}

// TestModelStreamsThatEndEarly lets streams break off after half of their events, and stall. It checks that weir never
// repeats such a call, because the vendor bills it, and that weir counts no less for it than the vendor.
func TestModelStreamsThatEndEarly(t *testing.T) {
	t.Parallel()
	const body = `{"stream":true,"max_tokens":20,"stream_options":{"include_usage":true}}`
	for what, behaves := range map[string]func(*fakeapi.Behaviour){
		"breaks off": func(b *fakeapi.Behaviour) { b.Fault = fakeapi.FaultResetAnswer },
		"stalls":     func(b *fakeapi.Behaviour) { b.Drip, b.DripSize = time.Hour, len(b.Text)/2 },
	} {
		for _, vendor := range []fakeapi.Vendor{fakeapi.OpenAI, fakeapi.Anthropic} {
			t.Run(fmt.Sprintf("%s %s", vendor, what), func(t *testing.T) {
				t.Parallel()
				script := func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
					b := vendor.Answer(q)
					behaves(&b)
					return b
				}
				r := weirtest.NewRig(t, fakeapi.Options{Vendor: vendor, Script: script},
					modelYAML(vendor, "idle_timeout: 500ms", "breaker: {failures: 0}"))
				r.Producer().Send("pay", "k", nats.Header{"Weir-Path": {"/v1/chat/completions"}, "Weir-Cost": {"30"}}, body)
				r.Store().Ended("pay", "k", 1)
				letters, totals := r.Store().Letters("pay", "k"), r.API.Totals()
				if len(letters) != 1 || letters[0].Header.Get(deadletter.HeaderReason) != "unknown" || totals.Arrivals != 1 {
					t.Errorf("the letters are %v, after %d calls", letters, totals.Arrivals)
				}
				account := weirtest.SpendOf(t, r.Worker.NATSURL())
				counted := weirtest.Millionths(t, account.Spent) + weirtest.Millionths(t, account.InDoubt)
				if counted < totals.Charged || totals.Charged == 0 {
					t.Errorf("weir spend says %s, and %s in doubt; the vendor bills %d", account.Spent, account.InDoubt, totals.Charged)
				}
			})
		}
	}
}
