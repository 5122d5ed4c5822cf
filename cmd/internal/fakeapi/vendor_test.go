package fakeapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
)

// TestVendorAnswers checks the forms of answers, and that the ledger charges the use that an answer reports.
func TestVendorAnswers(t *testing.T) {
	version := map[string]string{"Anthropic-Version": "2023-06-01"}
	for _, c := range []struct {
		vendor     fakeapi.Vendor
		path, body string
		header     map[string]string
		status     int
		form       string
		has, lacks string
		charged    int64
		end        string
	}{
		{
			fakeapi.Anthropic, "/v1/messages", `{"max_tokens":20}`, version, 200, "application/json",
			`"usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":10}`, "event:", 165, "",
		},
		{
			fakeapi.Anthropic, "/v1/messages", `{"max_tokens":20,"stream":true,"cache_control":{}}`, version, 200, "text/event-stream; charset=utf-8",
			`"usage":{"output_tokens":10}`, `"output_tokens":10,`, 13*3 + 10*15 + 12*4, "event: message_stop\n",
		},
		{fakeapi.Anthropic, "/v1/messages", "{}", nil, 400, "application/json", "invalid_request_error", "usage", 0, ""},
		{
			fakeapi.OpenAI, "/v1/chat/completions", `{"max_tokens":20}`, nil, 200, "application/json",
			`"usage":{"prompt_tokens":5,"completion_tokens":10,"total_tokens":15,`, "data:", 165, "",
		},
		{
			fakeapi.OpenAI, "/v1/chat/completions", `{"stream":true}`, nil, 200, "text/event-stream; charset=utf-8",
			`"finish_reason":"stop"`, "usage", 27, "data: [DONE]\n",
		},
		{
			fakeapi.OpenAI, "/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true}}`, nil, 200, "text/event-stream; charset=utf-8",
			`"choices":[],"usage":{"prompt_tokens":14,`, `"usage":null}` + "\n\ndata: [DONE]", 57, "data: [DONE]\n",
		},
		{
			fakeapi.OpenAI, "/v1/responses", `{"stream":true}`, nil, 200, "text/event-stream; charset=utf-8",
			`data: {"type":"response.completed","response":{"id":"resp_`, "[DONE]", 27, "",
		},
		{
			fakeapi.Bedrock, "/model/claude/converse", `{"max_tokens":20}`, nil, 200, "application/json",
			`"usage":{"inputTokens":5,"outputTokens":10,"totalTokens":15,`, "event", 165, "",
		},
		{fakeapi.Shopify, "/admin/api/2026-10/graphql.json", "{}", nil, 200, "application/json", `"actualQueryCost":46`, "order", 7, ""},
		{fakeapi.Twilio, "/2010-04-01/Accounts/AC1/Messages.json", "To=1", nil, 201, "application/json", `"sid":"SM000`, "usage", 7, ""},
	} {
		api := start(t, fakeapi.Options{Vendor: c.vendor, Price: 7})
		res, text := must(t, client(t), api.URL(), request{path: c.path, body: c.body, header: c.header})
		if res.StatusCode != c.status || res.Header.Get("Content-Type") != c.form || !strings.Contains(text, c.has) || strings.Contains(text, c.lacks) ||
			!strings.Contains(text, c.end) {
			t.Errorf("%s %s %s: %d %s\n%s", c.vendor, c.path, c.body, res.StatusCode, res.Header.Get("Content-Type"), text)
		}
		if got := api.Totals().Charged; got != c.charged {
			t.Errorf("%s %s %s: charged %d, want %d", c.vendor, c.path, c.body, got, c.charged)
		}
	}
}

// TestVendorLimits checks what each vendor reports about its limit: in the headers of an answer, and in a refusal.
func TestVendorLimits(t *testing.T) {
	for vendor, want := range map[fakeapi.Vendor]struct {
		header, value, refused string
		status                 int
	}{
		fakeapi.Anthropic: {"Anthropic-Ratelimit-Requests-Remaining", "1", "rate_limit_error", 429},
		fakeapi.Bedrock:   {"X-Amzn-Errortype", "", "Too many requests", 429},
		fakeapi.GitHub:    {"X-Ratelimit-Used", "1", "secondary rate limit", 429},
		fakeapi.OpenAI:    {"X-Ratelimit-Remaining-Requests", "1", "rate_limit_exceeded", 429},
		fakeapi.Shopify:   {"X-Shopify-Shop-Api-Call-Limit", "1/2", "Exceeded 2 calls per second", 429},
		fakeapi.Stripe:    {"Stripe-Rate-Limited-Reason", "", `"code":"rate_limit"`, 429},
		fakeapi.Twilio:    {"Retry-After", "", `"code":20429`, 429},
	} {
		api := start(t, fakeapi.Options{Vendor: vendor, Limit: fakeapi.VendorLimit{Count: 2, Per: time.Hour, Scope: fakeapi.AllKeys}})
		c := client(t)
		header := map[string]string{"Anthropic-Version": "2023-06-01"}
		res, _ := must(t, c, api.URL(), request{path: "/", header: header})
		if got := res.Header.Get(want.header); got != want.value {
			t.Errorf("%s: %s is %q, want %q", vendor, want.header, got, want.value)
		}
		must(t, c, api.URL(), request{path: "/", header: header})
		res, body := must(t, c, api.URL(), request{path: "/", header: header})
		if res.StatusCode != want.status || !strings.Contains(body, want.refused) || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s refuses with %d %v %s", vendor, res.StatusCode, res.Header, body)
		}
		if totals := api.Totals(); totals.Limited != 1 || totals.Billed != 2 {
			t.Errorf("%s: %+v", vendor, totals)
		}
	}
}

// TestVendorOverload checks that no vendor bills a call for which it had no capacity.
func TestVendorOverload(t *testing.T) {
	for _, vendor := range fakeapi.Vendors() {
		want := http.StatusServiceUnavailable
		if vendor == fakeapi.Anthropic {
			want = 529
		}
		if b := vendor.Overloaded(); b.Status != want || b.Bill != fakeapi.BillNever {
			t.Errorf("%s: %+v", vendor, b)
		}
	}
}
