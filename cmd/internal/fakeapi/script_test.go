package fakeapi_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	waits "weir/ingest/await"
)

// statuses sends requests and returns the answered statuses.
func statuses(t *testing.T, script fakeapi.Script, requests ...request) []int {
	t.Helper()
	api := start(t, fakeapi.Options{Script: script, Key: fakeapi.KeyFrom{Segment: 2}})
	c := client(t)
	var got []int
	for _, r := range requests {
		res, _ := must(t, c, api.URL(), r)
		got = append(got, res.StatusCode)
	}
	return got
}

func TestSteps(t *testing.T) {
	on := func(paths ...string) (requests []request) {
		for _, path := range paths {
			requests = append(requests, request{path: path, body: path, header: map[string]string{"Idempotency-Key": path}})
		}
		return requests
	}
	tests := []struct {
		name     string
		steps    string
		requests []request
		want     []int
	}{
		{"by path", `[{"path":"/pay/a","do":"status=500"}]`, on("/pay/a", "/pay/b", "/pay/a/x"), []int{500, 200, 200}},
		{"by path's beginning", `[{"path":"/pay/*","do":"status=500"}]`, on("/pay/a", "/get/a", "/pay/a/x"), []int{500, 200, 500}},
		{"by key", `[{"key":"b","do":"status=500"}]`, on("/pay/a", "/pay/b"), []int{200, 500}},
		{
			"by the key's call", `[{"first":2,"last":3,"do":"status=500"}]`,
			on("/p/a", "/p/b", "/p/a", "/q/a", "/p/a", "/p/b"),
			[]int{200, 200, 500, 500, 200, 500},
		},
		{"by the path's call", `[{"count":"path","last":1,"do":"status=500"}]`, on("/p/a", "/q/a", "/p/a"), []int{500, 500, 200}},
		{"by all calls", `[{"count":"all","first":2,"last":2,"do":"status=500"}]`, on("/p/a", "/p/b", "/p/b"), []int{200, 500, 200}},
		{"by body", `[{"count":"body","last":1,"do":"status=500"}]`, on("/p/a", "/p/b", "/p/a"), []int{500, 500, 200}},
		{"by id", `[{"count":"id","last":1,"do":"status=500"}]`, on("/p/a", "/p/b", "/p/a"), []int{500, 500, 200}},
		{"every other", `[{"count":"all","every":2,"do":"status=500"}]`, on("/p/a", "/p/a", "/p/a", "/p/a"), []int{200, 500, 200, 500}},
		{
			"the first that takes it", `[{"last":1,"do":"status=501"},{"last":2,"do":"status=502"}]`,
			on("/p/a", "/p/a", "/p/a"),
			[]int{501, 502, 200},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			script, err := fakeapi.ParseSteps([]byte(tt.steps))
			if err != nil {
				t.Fatal(err)
			}
			if got := statuses(t, script, tt.requests...); !slices.Equal(got, tt.want) {
				t.Errorf("answered %v, want %v", got, tt.want)
			}
		})
	}
}

func TestWrongStepsAreNamed(t *testing.T) {
	for text, word := range map[string]string{
		`[{"do":"status=1"}]`:                    "step 1",
		`[{"do":""},{"do":"","count":"colour"}]`: "step 2",
		`[{"what":1}]`:                           "what",
		`{`:                                      "script",
	} {
		if _, err := fakeapi.ParseSteps([]byte(text)); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestScriptSeesTheRequest(t *testing.T) {
	seen := make(chan fakeapi.Request, 1)
	body := make(chan string, 1)
	script := func(_ context.Context, r *fakeapi.Request) fakeapi.Behaviour {
		seen <- *r
		body <- string(r.Body())
		return fakeapi.Behaviour{Status: 299}
	}
	got := statuses(t, script, request{path: "/p/k?q", body: "hello", header: map[string]string{"X-A": "1"}})
	r := waits.Receive(t, "the request", seen)
	if got[0] != 299 || r.Number != 1 || r.KeyCall != 1 || r.Method != "POST" || r.Path != "/p/k" || r.Query != "q" || r.Key != "k" ||
		r.Header.Get("X-A") != "1" || waits.Receive(t, "its body", body) != "hello" {
		t.Errorf("answered %v, script saw %+v", got, r)
	}
}

// TestOrderGoesBeforeScript checks that a request's own order wins over the script.
func TestOrderGoesBeforeScript(t *testing.T) {
	script, err := fakeapi.Steps(fakeapi.Step{Do: "status=500"})
	if err != nil {
		t.Fatal(err)
	}
	if got := statuses(t, script, order("status=201"), request{path: "/?fake-status=202"}, request{path: "/"}); !slices.Equal(got, []int{201, 202, 500}) {
		t.Errorf("answered %v", got)
	}
}

// TestScriptAsGate checks that a script may hold a call back for any time.
func TestScriptAsGate(t *testing.T) {
	gate := make(chan struct{})
	api := start(t, fakeapi.Options{Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{}
	}})
	c := client(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		must(t, c, api.URL(), request{path: "/"})
	}()
	await(t, api, func(totals fakeapi.Totals) bool { return totals.Arrivals == 1 })
	if api.Totals().Ended != 0 {
		t.Error("ended before the gate opened")
	}
	close(gate)
	waits.Receive(t, "the call to end", done)
	if api.Totals().Ended != 1 {
		t.Error("not ended")
	}
}

// TestStepsOfAVendor checks that a request that no step takes is answered and billed as the vendor does.
func TestStepsOfAVendor(t *testing.T) {
	script, err := fakeapi.ParseSteps([]byte(`[{"last":1,"do":"status=503"}]`))
	if err != nil {
		t.Fatal(err)
	}
	api := start(t, fakeapi.Options{Script: script, Vendor: fakeapi.OpenAI})
	ask := request{path: "/v1/chat/completions", body: `{"metadata":{"input_tokens":"5","output_tokens":"3"}}`}
	if res, _ := must(t, client(t), api.URL(), ask); res.StatusCode != 503 {
		t.Errorf("status %d", res.StatusCode)
	}
	res, body := must(t, client(t), api.URL(), ask)
	if res.StatusCode != 200 || !strings.Contains(body, `"total_tokens":8`) {
		t.Errorf("status %d: %s", res.StatusCode, body)
	}
	if sum := api.Totals(); sum.Billed != 1 || sum.Charged != 5*fakeapi.InputPrice+3*fakeapi.OutputPrice {
		t.Errorf("%+v", sum)
	}
}
