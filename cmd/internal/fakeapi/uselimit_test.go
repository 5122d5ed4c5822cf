package fakeapi_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	waits "weir/ingest/await"
)

// uses returns a limit that all keys share. Its period is longer than any test.
func uses(name string, count int64, weigh fakeapi.Weigh, most fakeapi.MaxTokens) fakeapi.UseLimit {
	return fakeapi.UseLimit{Name: name, Count: count, Per: time.Hour, Scope: fakeapi.AllKeys, Weigh: weigh, Max: most}
}

// TestUseLimits sends requests one after another. A request has 5 input tokens, or more if its body is longer.
func TestUseLimits(t *testing.T) {
	const (
		twenty = `{"max_tokens":20}`                                  // 10 of output
		three  = `{"max_tokens":90,"metadata":{"output_tokens":"3"}}` // 12 of input
		cached = `{"max_tokens":2,"cache_control":{}}`                // 9 of input, 12 written, 7 read
		long   = `{"max_tokens":5,"metadata":{"output_tokens":"70"}}` // 5 of output
	)
	both, input, output := fakeapi.Weigh{Input: 1, Output: 1}, fakeapi.Weigh{Input: 1}, fakeapi.Weigh{Output: 1}
	one := func(count int64, weigh fakeapi.Weigh, most fakeapi.MaxTokens) []fakeapi.UseLimit {
		return []fakeapi.UseLimit{uses("tokens", count, weigh, most)}
	}
	apart := []fakeapi.UseLimit{uses("input_tokens", 1000, input, ""), uses("output_tokens", 20, output, "")}
	uncached, whole := fakeapi.Weigh{Input: 1, Written: 1}, fakeapi.Weigh{Input: 1, Written: 1, Read: 1}
	big := strings.Repeat("x", 80) // 21 of input, and 1 of output
	for _, c := range []struct {
		what   string
		limits []fakeapi.UseLimit
		bodies []string
		want   string // statuses
	}{
		{"all tokens", one(45, both, ""), []string{twenty, twenty, twenty, twenty}, "200 200 200 429"},
		{"input and output apart", apart, []string{twenty, twenty, twenty}, "200 200 429"},
		{"a call that is refused uses nothing", one(30, both, ""), []string{twenty, big, twenty}, "200 429 200"},
		{"an output token counts five", one(60, fakeapi.Weigh{Input: 1, Output: 5}, ""), []string{twenty, twenty}, "200 429"},
		{
			"max_tokens counts while the call runs", one(90, output, fakeapi.MaxRunning),
			[]string{three, three, twenty},
			"200 429 200",
		},
		{"max_tokens counts for good", one(100, output, fakeapi.MaxAlways), []string{three, twenty}, "200 429"},
		{"tokens read from a cache do not count", one(42, uncached, ""), []string{cached, cached}, "200 200"},
		{"tokens read from a cache count", one(42, whole, ""), []string{cached, cached}, "200 429"},
		{"output that max_tokens cuts off", one(5, output, ""), []string{long, long}, "200 429"},
		{"requests", one(1, fakeapi.Weigh{Call: 1}, ""), []string{twenty, twenty}, "200 429"},
	} {
		api := start(t, fakeapi.Options{Vendor: fakeapi.OpenAI, Limits: c.limits})
		var got []string
		for _, body := range c.bodies {
			res, _ := must(t, client(t), api.URL(), request{path: "/v1/chat/completions", body: body})
			got = append(got, res.Status[:3])
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: answers %s, want %s", c.what, got, c.want)
		}
		for _, v := range fakeapi.Windows(api.All(), c.limits...) {
			if v.Over > 0 || v.Fullest > v.Count || v.Fullest != v.Used {
				t.Errorf("%s: the api let through %+v", c.what, v)
			}
		}
	}
}

// TestUseLimitsOfKeys checks that each key has a limit of its own, and that a call that is not billed returns its
// units.
func TestUseLimitsOfKeys(t *testing.T) {
	limit := fakeapi.UseLimit{Name: "tokens", Count: 20, Per: time.Hour, Weigh: fakeapi.Weigh{Output: 1}}
	fails := func(_ context.Context, r *fakeapi.Request) fakeapi.Behaviour {
		b := fakeapi.OpenAI.Answer(r)
		if r.KeyCall == 1 {
			b.Status = http.StatusInternalServerError
		}
		return b
	}
	api := start(t, fakeapi.Options{Vendor: fakeapi.OpenAI, Limits: []fakeapi.UseLimit{limit}, Script: fails})
	for _, key := range []string{"a", "b"} {
		for i, want := range []int{500, 200, 200, 429} {
			res, _ := must(t, client(t), api.URL(), request{body: `{"max_tokens":20}`, header: map[string]string{"X-Key": key}})
			if res.StatusCode != want {
				t.Errorf("call %d of %s: %d, want %d", i+1, key, res.StatusCode, want)
			}
		}
	}
	if v := fakeapi.Windows(api.All(), limit)[0]; v.Fullest != 20 || v.Used != 40 || v.Key != "a" || v.Over != 0 {
		t.Errorf("the windows are %+v", v)
	}
}

// TestUseLimitsAreTold checks what vendors report about limits in tokens, in headers and in a refusal.
func TestUseLimitsAreTold(t *testing.T) {
	for vendor, want := range map[fakeapi.Vendor][2]map[string]string{
		fakeapi.OpenAI: {
			{
				"X-Ratelimit-Limit-Tokens": "60000", "X-Ratelimit-Remaining-Tokens": "29500",
				"X-Ratelimit-Remaining-Requests": "9",
			},
			{"X-Ratelimit-Remaining-Tokens": "29500", "Retry-After": "3600"},
		},
		fakeapi.Anthropic: {
			{
				"Anthropic-Ratelimit-Tokens-Limit": "60000", "Anthropic-Ratelimit-Tokens-Remaining": "30000",
				"Anthropic-Ratelimit-Requests-Remaining": "9",
			},
			{"Anthropic-Ratelimit-Tokens-Remaining": "30000", "Retry-After": "3600"},
		},
	} {
		api := start(t, fakeapi.Options{Vendor: vendor, Limits: []fakeapi.UseLimit{
			uses("tokens", 60_000, fakeapi.Weigh{Output: 1}, ""), uses("requests", 10, fakeapi.Weigh{Call: 1}, ""),
		}})
		for i, status := range []int{200, 429} {
			q := request{body: `{"max_tokens":61000}`, header: map[string]string{"Anthropic-Version": "2023-06-01"}}
			res, body := must(t, client(t), api.URL(), q)
			for name, value := range want[i] {
				if got := res.Header.Get(name); got != value {
					t.Errorf("%s, call %d: %s is %q, want %q", vendor, i+1, name, got, value)
				}
			}
			names := vendor != fakeapi.OpenAI || status == 200 || strings.Contains(body, `"type":"tokens"`)
			if res.StatusCode != status || !names {
				t.Errorf("%s, call %d: %d %s", vendor, i+1, res.StatusCode, body)
			}
		}
	}
}

// TestUseIsInTheLedger checks that the ledger has the use of calls, and that a process that continues the ledger counts
// it.
func TestUseIsInTheLedger(t *testing.T) {
	o := fakeapi.Options{
		Vendor: fakeapi.OpenAI, Ledger: filepath.Join(t.TempDir(), "ledger"),
		Limits: []fakeapi.UseLimit{uses("tokens", 40, fakeapi.Weigh{Output: 1, Written: 1}, "")},
	}
	const body = `{"max_tokens":20,"cache_control":{}}`
	for _, want := range []int{200, 429} {
		api, err := fakeapi.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		if res, _ := must(t, client(t), api.URL(), request{body: body}); res.StatusCode != want {
			t.Errorf("answered %d, want %d", res.StatusCode, want)
		}
		if err := api.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ledger, err := fakeapi.ReadLedger(o.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	want := fakeapi.Tokens{Input: 10, Output: 10, Written: 12, Read: 7, Max: 20}
	if got := ledger.Arrivals[0].Used; got != want {
		t.Errorf("the ledger has %+v, want %+v", got, want)
	}
	if v := fakeapi.Windows(ledger.Arrivals, o.Limits...)[0]; v.Used != 22 {
		t.Errorf("the windows by the ledger are %+v", v)
	}
}

// TestWindows compares the verdicts with a separate count of every window.
func TestWindows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	limit := fakeapi.UseLimit{Name: "tokens", Count: 60, Per: 100, Weigh: fakeapi.Weigh{Output: 2, Input: 1}}
	over := 0
	for range 500 {
		var all []fakeapi.Arrival
		for i := range rng.IntN(20) {
			all = append(all, fakeapi.Arrival{
				Number: int64(i), At: rng.Int64N(300), Key: string(rune('a' + rng.IntN(2))), Billed: rng.IntN(4) > 0,
				Used: fakeapi.Tokens{Input: rng.Int64N(9), Output: rng.Int64N(9)},
			})
		}
		var fullest, used int64
		for at := range int64(300) {
			for _, key := range []string{"a", "b"} {
				sum := int64(0)
				for _, a := range all {
					if a.Key == key && a.Billed && a.At >= at && a.At < at+100 {
						sum += a.Used.Input + 2*a.Used.Output
					}
				}
				fullest = max(fullest, sum)
			}
		}
		for _, a := range all {
			if a.Billed {
				used += a.Used.Input + 2*a.Used.Output
			}
		}
		v := fakeapi.Windows(all, limit)[0]
		if v.Fullest != fullest || v.Used != used || (v.Over > 0) != (fullest > limit.Count) {
			t.Fatalf("%+v\nfullest %d, used %d: %+v", v, fullest, used, all)
		}
		over += v.Over
	}
	if over == 0 {
		t.Error("no window was over: that proves nothing")
	}
}

// TestStreamsOfEvents checks a stream of JSON lines, and one that breaks off after half of its events.
func TestStreamsOfEvents(t *testing.T) {
	second := func(_ context.Context, r *fakeapi.Request) fakeapi.Behaviour {
		b := fakeapi.OpenAI.Answer(r)
		if r.Number == 2 {
			b.Fault = fakeapi.FaultResetAnswer
		}
		return b
	}
	api := start(t, fakeapi.Options{Vendor: fakeapi.OpenAI, Script: second})
	const body = `{"stream":true,"max_tokens":20,"stream_options":{"include_usage":true}}`
	const lines = "application/x-ndjson"
	res, text := must(t, client(t), api.URL(), request{body: body, header: map[string]string{"Accept": lines}})
	form := res.Header.Get("Content-Type")
	if form != lines || strings.Count(text, "\n") != 3 || strings.Contains(text, "data:") ||
		!strings.Contains(text, `"completion_tokens":10`) {
		t.Errorf("%s:\n%s", form, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waits.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err = client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	half, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(string(half), "\n\n") ||
		strings.Contains(string(half), `"usage":{`) {
		t.Errorf("%v after:\n%s", err, half)
	}
	if totals := api.Totals(); totals.Billed != 2 {
		t.Errorf("%d calls are billed, want both", totals.Billed)
	}
}
