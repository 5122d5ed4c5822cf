package limits

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// vendorYAML is a configuration with nothing but the vendor and what every api needs, and more lines of the api.
func vendorYAML(vendor fakeapi.Vendor, lines ...string) string {
	return "apis:\n  pay:\n    url: %s\n    vendor: " + string(vendor) + "\n    bucket: {rate: 1000/s, capacity: 50}\n    " +
		strings.Join(lines, "\n    ") + "\n"
}

// ordered is a fake of a vendor that answers the first calls as ordered, and then as it should.
func ordered(vendor fakeapi.Vendor, first ...fakeapi.Behaviour) fakeapi.Options {
	return fakeapi.Options{
		Vendor: vendor, Key: fakeapi.KeyFrom{Segment: -1}, Headers: []string{"Idempotency-Key", "Anthropic-Version"},
		Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			if q.Number <= int64(len(first)) {
				return first[q.Number-1]
			}
			return vendor.Answer(q)
		},
	}
}

// with adds headers to an answer.
func with(b fakeapi.Behaviour, fields ...fakeapi.Field) fakeapi.Behaviour {
	b.Header = append(b.Header[:len(b.Header):len(b.Header)], fields...)
	return b
}

// outcomes are the outcomes and the charges of a key's calls, in order.
func outcomes(r *weirtest.Rig, key string) (all []string) {
	r.T.Helper()
	for _, c := range r.Store().Ledger("pay", key) {
		all = append(all, c.Outcome+" "+string(c.Billed))
	}
	return all
}

// TestVendorsPushBack lets each vendor refuse a call as its documents say, by its limit or because it is overloaded:
// weir understands for how long and for whom, charges nothing, uses up no attempt, and delivers the job then.
func TestVendorsPushBack(t *testing.T) {
	t.Parallel()
	after := func(b fakeapi.Behaviour, wait string) fakeapi.Behaviour {
		b.RetryAfter = wait
		return b
	}
	reset := strconv.FormatInt(time.Now().Add(2*time.Second).Unix(), 10)
	for _, c := range []struct {
		what    string
		vendor  fakeapi.Vendor
		answer  fakeapi.Behaviour
		outcome string
		least   time.Duration
		holds   string
	}{
		{"limit", fakeapi.Anthropic, after(fakeapi.Anthropic.Limited(fakeapi.Seconds), "2"), "pushback", 2 * time.Second, "api"},
		{"overload", fakeapi.Anthropic, fakeapi.Anthropic.Overloaded(), "pushback", 0, "api"},
		{"limit", fakeapi.Bedrock, fakeapi.Bedrock.Limited(fakeapi.Absent), "pushback", 0, "api"},
		{"overload", fakeapi.Bedrock, fakeapi.Bedrock.Overloaded(), "pushback", 0, "api"},
		{"secondary limit", fakeapi.GitHub, after(fakeapi.GitHub.Limited(fakeapi.Seconds), "2"), "pushback", 2 * time.Second, "api"},
		{"primary limit", fakeapi.GitHub, with(fakeapi.GitHub.Limited(fakeapi.Absent),
			fakeapi.Field{Name: "X-Ratelimit-Remaining", Value: "0"}, fakeapi.Field{Name: "X-Ratelimit-Reset", Value: reset}), "denied", 0, "api"},
		{
			"limit", fakeapi.OpenAI, with(fakeapi.OpenAI.Limited(fakeapi.Absent),
				fakeapi.Field{Name: "X-Ratelimit-Remaining-Requests", Value: "0"}, fakeapi.Field{Name: "X-Ratelimit-Reset-Requests", Value: "2s"}),
			"pushback", 2 * time.Second, "api",
		},
		{"overload", fakeapi.OpenAI, fakeapi.OpenAI.Overloaded(), "pushback", 0, "api"},
		{"limit", fakeapi.Shopify, after(fakeapi.Shopify.Limited(fakeapi.Seconds), "2.0"), "pushback", 2 * time.Second, "api"},
		{"limit", fakeapi.Stripe, fakeapi.Stripe.Limited(fakeapi.Absent), "pushback", 0, "key"},
		{"limit", fakeapi.Twilio, fakeapi.Twilio.Limited(fakeapi.Absent), "pushback", 0, "key"},
	} {
		t.Run(string(c.vendor)+" "+c.what, func(t *testing.T) {
			t.Parallel()
			var lines []string
			if c.outcome == "denied" { // which lasts at least retry.min: a minute, by the vendor's documents
				lines = []string{"retry: {min: 100ms}"}
			}
			r := weirtest.NewRig(t, ordered(c.vendor, c.answer), vendorYAML(c.vendor, lines...))
			events, err := r.NC.SubscribeSync("weir.events.held.pay.>")
			if err != nil {
				t.Fatal(err)
			}
			r.Producer().Pay("first", "first")
			held, err := events.NextMsg(weirtest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			if scope := map[string]string{"_": "api", "first": "key"}[held.Subject[strings.LastIndex(held.Subject, ".")+1:]]; scope != c.holds {
				t.Errorf("the hold is of the %s, want the %s", scope, c.holds)
			}
			sent := int64(time.Since(r.API.Started()))
			r.Producer().Pay("other", "other")
			r.Store().Ended("pay", "first", 1)
			r.Store().Ended("pay", "other", 1)
			r.Referee().CheckHeld(c.holds, c.least, sent)
			if got, want := outcomes(r, "first"), []string{c.outcome + " no", "done yes"}; !slices.Equal(got, want) {
				t.Errorf("the ledger has %v, want %v", got, want)
			}
			if attempts := r.Store().Results("pay", "first")[0].Header.Get("Weir-Attempts"); attempts != "1" {
				t.Errorf("it took %s attempts", attempts)
			}
			if totals := r.API.Totals(); totals.Billed != 2 {
				t.Errorf("the vendor bills %d calls", totals.Billed)
			}
		})
	}
}

// TestVendorsIdempotency breaks off the first call of a job. Only the vendor that documents idempotency keys is called
// again, under the same key, also while it says that the first call still runs, and it bills once. With every other
// vendor the job is parked.
func TestVendorsIdempotency(t *testing.T) {
	t.Parallel()
	for _, vendor := range fakeapi.Vendors() {
		t.Run(string(vendor), func(t *testing.T) {
			t.Parallel()
			o := ordered(vendor, fakeapi.Behaviour{Fault: fakeapi.FaultResetBody})
			if vendor == fakeapi.Stripe {
				o.Script = stripeConflict
			}
			r := weirtest.NewRig(t, o, vendorYAML(vendor, "retry: {min: 5ms, max: 20ms}"))
			r.Producer().Pay("cut", "cut")
			r.Store().Ended("pay", "cut", 1)
			calls := r.API.Arrivals("cut")
			if vendor != fakeapi.Stripe {
				if letters := r.Store().Letters("pay", "cut"); len(letters) != 1 || letters[0].Header.Get(deadletter.HeaderReason) != "unknown" || len(calls) != 1 {
					t.Errorf("%d letters, %d calls", len(letters), len(calls))
				}
				return
			}
			for i := range calls {
				if key := calls[i].Header("Idempotency-Key"); key != "cut" {
					t.Errorf("call %d has the key %q", i+1, key)
				}
			}
			if totals := r.API.Totals(); len(calls) != 3 || totals.Billed != 1 || len(r.Store().Results("pay", "cut")) != 1 {
				t.Errorf("%d calls, %+v, ledger %v", len(calls), totals, outcomes(r, "cut"))
			}
		})
	}
}

// stripeConflict loses the first call before it is carried out, answers the second with 409, and carries out the third.
func stripeConflict(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
	switch q.Number {
	case 1:
		return fakeapi.Behaviour{Fault: fakeapi.FaultResetBody, Bill: fakeapi.BillNever}
	case 2:
		return fakeapi.Behaviour{Status: http.StatusConflict, Bill: fakeapi.BillNever}
	}
	return fakeapi.Stripe.Answer(q)
}

// TestVendorsKill kills weir in the middle of a call. With a vendor's idempotency key the next weir calls again under
// the same key; without one it parks the job.
func TestVendorsKill(t *testing.T) {
	t.Parallel()
	for vendor, want := range map[fakeapi.Vendor]struct {
		outcome string
		calls   int
	}{fakeapi.Stripe: {"done", 2}, fakeapi.Anthropic: {"unknown", 1}} {
		t.Run(string(vendor), func(t *testing.T) {
			t.Parallel()
			entered, released := make(chan struct{}, 1), make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			t.Cleanup(release)
			o := ordered(vendor)
			o.Idempotency.Repeat = fakeapi.RepeatAwaited
			o.Script = func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
				answer := vendor.Answer(q)
				entered <- struct{}{}
				select {
				case <-released:
				case <-ctx.Done():
				}
				return answer
			}
			r := weirtest.NewKillRig(t, o, vendorYAML(vendor))
			ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
			defer cancel()
			r.Publish(ctx, "weir.jobs.pay.one", "one", []byte("one"))
			await.Receive(t, "the first call", entered)
			r.Proc.Kill()
			release()
			r.Start()
			r.AwaitEmpty()
			if got := r.Outcomes()["one"]; !slices.Equal(got, []string{want.outcome}) {
				t.Errorf("the job ended as %v, want %s", got, want.outcome)
			}
			calls := r.API.Arrivals("one")
			for i := range calls {
				if key := calls[i].Header("Idempotency-Key"); (key == "one") != (vendor == fakeapi.Stripe) {
					t.Errorf("call %d has the key %q", i+1, key)
				}
			}
			if totals := r.API.Totals(); len(calls) != want.calls || totals.Billed != 1 {
				t.Errorf("%d calls, want %d: %+v", len(calls), want.calls, totals)
			}
		})
	}
}

// TestVendorsUsage lets the vendors that report a call's use do so in every form that they document, streams too: weir
// counts what they report, and its bill is theirs.
func TestVendorsUsage(t *testing.T) {
	t.Parallel()
	const price = "price: [{each: 3, per: 1000000, from: 1, settle: usage:input_tokens}, {each: 15, per: 1000000, from: 1, settle: usage:output_tokens}%s]"
	const written = ", {each: 4, per: 1000000, from: 1, settle: usage:cache_creation_input_tokens}"
	for _, c := range []struct {
		what   string
		vendor fakeapi.Vendor
		lines  []string
		path   string
		body   string
		want   map[string]int64
	}{
		{
			"message", fakeapi.Anthropic,
			[]string{fmt.Sprintf(price, written)},
			"/v1/messages", `{"max_tokens":20,"cache_control":{}}`,
			map[string]int64{"input_tokens": 10, "output_tokens": 10, "cache_creation_input_tokens": 12, "cache_read_input_tokens": 7},
		},
		{
			"streamed message", fakeapi.Anthropic,
			[]string{fmt.Sprintf(price, written)},
			"/v1/messages", `{"max_tokens":20,"stream":true}`,
			map[string]int64{"input_tokens": 8, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
		},
		{
			"chat completion", fakeapi.OpenAI,
			[]string{fmt.Sprintf(price, "")},
			"/v1/chat/completions", `{"max_tokens":20}`,
			map[string]int64{"input_tokens": 5, "output_tokens": 10, "cached_tokens": 0, "total_tokens": 15},
		},
		{
			"streamed chat completion", fakeapi.OpenAI,
			[]string{fmt.Sprintf(price, "")},
			"/v1/chat/completions",
			`{"max_tokens":20,"stream":true,"stream_options":{"include_usage":true}}`,
			map[string]int64{"input_tokens": 18, "output_tokens": 10, "cached_tokens": 0, "total_tokens": 28},
		},
		{
			"response", fakeapi.OpenAI,
			[]string{fmt.Sprintf(price, "")},
			"/v1/responses", `{"max_tokens":20}`,
			map[string]int64{"input_tokens": 5, "output_tokens": 10, "cached_tokens": 0, "total_tokens": 15},
		},
		{
			"streamed response", fakeapi.OpenAI,
			[]string{fmt.Sprintf(price, "")},
			"/v1/responses", `{"max_tokens":20,"stream":true}`,
			map[string]int64{"input_tokens": 8, "output_tokens": 10, "cached_tokens": 0, "total_tokens": 18},
		},
		{
			"conversation", fakeapi.Bedrock,
			[]string{fmt.Sprintf(price, "")},
			"/model/claude/converse", `{"max_tokens":20}`,
			map[string]int64{"input_tokens": 5, "output_tokens": 10, "cache_read_input_tokens": 0, "cache_write_input_tokens": 0},
		},
		{
			"query", fakeapi.Shopify,
			[]string{"price: 0.000007"},
			"/admin/api/2026-10/graphql.json", `{"query":""}`,
			map[string]int64{"points": 46},
		},
	} {
		t.Run(string(c.vendor)+" "+c.what, func(t *testing.T) {
			t.Parallel()
			r := weirtest.NewRig(t, fakeapi.Options{Vendor: c.vendor, Price: 7}, vendorYAML(c.vendor, c.lines...))
			for i := range 2 {
				r.Producer().Send("pay", "one", nats.Header{"Nats-Msg-Id": {strconv.Itoa(i)}, "Weir-Path": {c.path}}, c.body)
			}
			r.Store().Ended("pay", "one", 2)
			var bill grammar.Money
			for _, record := range r.Store().Ledger("pay", "one") {
				if !maps.Equal(record.Usage, c.want) {
					t.Errorf("the ledger has %v, want %v", record.Usage, c.want)
				}
				amount, err := grammar.ParseMoney(record.Price)
				if err != nil {
					t.Fatal(err)
				}
				bill += amount
			}
			if totals := r.API.Totals(); int64(bill) != totals.Charged || totals.Billed != 2 {
				t.Errorf("weir's bill is %s, the vendor's %s: %+v", bill, grammar.Money(totals.Charged), totals)
			}
		})
	}
}

// TestVendorsLimits checks that limits with the names that a vendor gives its own are counted as the vendor counts
// them: what an answer reports replaces the estimate.
func TestVendorsLimits(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Vendor: fakeapi.Anthropic}, vendorYAML(fakeapi.Anthropic,
		"limits: [{name: input_tokens, quota: 1000/day}, {name: output_tokens, quota: 1000/day}, {name: requests, quota: 1000/day}]"))
	for i := range 3 {
		r.Producer().Send("pay", "one", nats.Header{"Nats-Msg-Id": {strconv.Itoa(i)}, "Weir-Cost": {"100"}}, `{"max_tokens":20,"cache_control":{}}`)
	}
	r.Store().Ended("pay", "one", 3)
	for _, record := range r.Store().Ledger("pay", "one") {
		took := map[string]int64{}
		for i, limit := range record.Limits {
			took[limit] = record.Costs[i]
		}
		if got, want := fmt.Sprint(took), "map[input_tokens:22 output_tokens:10 requests:1]"; got != want {
			t.Errorf("a call took %s of the limits, want %s: its input and what it wrote to the cache, its output, and one request", got, want)
		}
	}
}

// TestVendorsLeft lets another program use most of an account: the headers of each vendor that says what is left are
// read in the form that it documents, so that weir makes the calls that are left and the vendor refuses none.
func TestVendorsLeft(t *testing.T) {
	t.Parallel()
	const count, others = 60, 55
	for vendor, per := range map[fakeapi.Vendor]time.Duration{fakeapi.Anthropic: time.Minute, fakeapi.GitHub: time.Hour, fakeapi.OpenAI: time.Minute} {
		t.Run(string(vendor), func(t *testing.T) {
			t.Parallel()
			r := weirtest.NewRig(t, fakeapi.Options{
				Vendor: vendor, Key: fakeapi.KeyFrom{Segment: -1}, Limit: fakeapi.VendorLimit{Count: count, Per: per, Scope: fakeapi.AllKeys},
			}, fmt.Sprintf(`
apis:
  pay:
    url: %%s
    vendor: %s
    bucket: {rate: 1000/s, capacity: 50, in_flight: 1}
    limits: [{name: requests, rate: %d/%s, burst: 20}]
    retry: {headers: ignore}
`, vendor, count, grammar.FormatDuration(per)))
			for range others {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.API.URL()+"/other", strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
			}
			for i := range 12 {
				r.Producer().Pay("k", strconv.Itoa(i))
			}
			r.Eventually("status to say what the vendor counts", func() bool {
				said, _ := r.CLI().Run("status")
				return strings.Contains(said, "the vendor counts ")
			})
			r.Eventually("the calls that are left", func() bool {
				return len(r.Store().Results("pay", "k")) >= count-others
			})
			if calls, totals := r.API.Arrivals("k"), r.API.Totals(); len(calls) != count-others || totals.ByStatus[http.StatusTooManyRequests] > 0 || totals.ByStatus[http.StatusForbidden] > 0 {
				t.Errorf("%d calls where %d are left: %+v", len(calls), count-others, totals)
			}
			if metrics := r.HTTP().Get("/metrics"); strings.Contains(metrics, `weir_left_unreadable_total{api="pay"`) {
				t.Error("a header could not be read")
			}
		})
	}
}

// TestVendorsReject lets Stripe decline a card: that concerns the job alone, which is never called again, and no other
// job waits.
func TestVendorsReject(t *testing.T) {
	t.Parallel()
	declined := fakeapi.Behaviour{Status: http.StatusPaymentRequired, Bill: fakeapi.BillNever}
	r := weirtest.NewRig(t, ordered(fakeapi.Stripe, declined), vendorYAML(fakeapi.Stripe))
	r.Producer().Pay("declined", "declined")
	r.Store().Ended("pay", "declined", 1)
	r.Producer().Pay("other", "other")
	r.Store().Ended("pay", "other", 1)
	if letters := r.Store().Letters("pay", "declined"); len(letters) != 1 || letters[0].Header.Get(deadletter.HeaderReason) != "rejected" || letters[0].Header.Get(deadletter.HeaderBilled) != "no" {
		t.Errorf("the letters are %v", letters)
	}
	if n := len(r.Store().Results("pay", "other")); n != 1 || len(r.API.Arrivals("declined")) != 1 || len(r.Store().Stored("WEIR_EVENTS", "weir.events.held.pay._")) > 0 {
		t.Errorf("%d results of another job, %d calls of the declined one", n, len(r.API.Arrivals("declined")))
	}
}
