package fakeapi_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"weir/cmd/internal/fakeapi"
)

// TestOperations checks an operation from its submission to its end, and the count of each step.
func TestOperations(t *testing.T) {
	o := &fakeapi.Operations{Polls: 1}
	api, err := fakeapi.Start(fakeapi.Options{Script: o.Script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // the test is over
	ask := func(method, url string, status int, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }() // it was read
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != status || string(text) != body {
			t.Fatalf("%s %s: %d %s, %v", method, url, answer.StatusCode, text, err)
		}
		return answer
	}
	at := api.URL() + ask("POST", api.URL()+"/v1/one", 202, `{"id":"one"}`).Header.Get("Location")
	ask("GET", at, 200, `{"state":"running","output":{"of":"one"}}`)
	o.Hold("one")
	ask("GET", at, 200, `{"state":"running","output":{"of":"one"}}`)
	o.Finish("one")
	ask("GET", at, 200, `{"state":"done","output":{"of":"one"}}`)
	ask("DELETE", at, 200, `{"state":"cancelled"}`)
	if o.Submitted("one") != 1 || o.Polled("one") != 3 || o.Cancelled("one") != 1 {
		t.Errorf("submitted %d times, polled %d times, cancelled %d times", o.Submitted("one"), o.Polled("one"), o.Cancelled("one"))
	}
	if sum := api.Totals(); sum.Billed != 1 {
		t.Errorf("%d requests are billed", sum.Billed)
	}
}

// TestOperationsBehind checks that a script decides first about the POSTs that begin operations, and does not see
// polls.
func TestOperationsBehind(t *testing.T) {
	steps, err := fakeapi.ParseSteps([]byte(`[{"first":2,"last":2,"count":"all","do":"status=429"}]`))
	if err != nil {
		t.Fatal(err)
	}
	o := &fakeapi.Operations{Name: func(r *fakeapi.Request) string { return fmt.Sprint(r.Number) }}
	api, err := fakeapi.Start(fakeapi.Options{Script: o.Behind(steps)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // the test is over
	for n, want := range []struct {
		method, path string
		status       int
		location     string
	}{
		{"POST", "/v1/one", 202, "/operations/1"},
		{"POST", "/v1/one", 429, ""},
		{"GET", "/operations/1", 200, ""},
		{"POST", "/v1/one", 202, "/operations/4"},
		{"GET", "/operations/2", 404, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), want.method, api.URL()+want.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // not read
		if answer.StatusCode != want.status || answer.Header.Get("Location") != want.location {
			t.Errorf("request %d: %d, %q", n+1, answer.StatusCode, answer.Header.Get("Location"))
		}
	}
}
