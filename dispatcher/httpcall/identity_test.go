package httpcall

import (
	"net/url"
	"testing"
	"time"

	"weir/deadletter"
	"weir/ingest"
)

// TestKeyIdentity checks that the identity covers exactly what makes two calls of a job one call to the api.
func TestKeyIdentity(t *testing.T) {
	api := func(header string, quoted bool, place string, methods ...string) *API {
		u, err := url.Parse(place)
		if err != nil {
			t.Fatal(err)
		}
		return &API{Name: "pay", URL: u, Idempotency: &Idempotency{Header: header, Quoted: quoted}, Rule: &ingest.Rule{API: "pay", Methods: methods}}
	}
	first := api("Key", false, "https://a.example/v1", "POST", "PUT")
	if id := api("Key", false, "https://a.example/v1", "POST").KeyIdentity(); id != first.KeyIdentity() || id == "" {
		t.Errorf("what a job may ask for besides makes %q of %q", id, first.KeyIdentity())
	}
	for what, other := range map[string]*API{
		"the header": api("Other", false, "https://a.example/v1", "POST"), "its form": api("Key", true, "https://a.example/v1", "POST"),
		"the scheme": api("Key", false, "http://a.example/v1", "POST"), "the host": api("Key", false, "https://b.example/v1", "POST"),
		"the path": api("Key", false, "https://a.example/v2", "POST"), "the method": api("Key", false, "https://a.example/v1", "PUT"),
		"nothing": {URL: first.URL},
	} {
		if other.KeyIdentity() == first.KeyIdentity() {
			t.Errorf("with %s changed it is %q still", what, other.KeyIdentity())
		}
	}
	if id := (&API{URL: first.URL}).KeyIdentity(); id != "" {
		t.Errorf("an api without keys has %q", id)
	}
}

// TestCallIdentity checks that the identity of a call says until when the api knows its key, and only if the api forgets.
func TestCallIdentity(t *testing.T) {
	api, begins := &API{Idempotency: &Idempotency{Header: "Key"}}, time.Unix(1_800_000_000, 0)
	if got := api.CallIdentity(begins); got != api.KeyIdentity() {
		t.Errorf("with an api that forgets nothing it is %q", got)
	}
	api.Idempotency.For = time.Hour
	got := api.CallIdentity(begins)
	if !deadletter.SameKey(got, api.KeyIdentity()) || deadletter.KeyForgotten(got, begins.Add(58*time.Minute)) || !deadletter.KeyForgotten(got, begins.Add(time.Hour)) {
		t.Errorf("with an api that forgets after an hour it is %q", got)
	}
	if got := new(API).CallIdentity(begins); got != "" {
		t.Errorf("without a key it is %q", got)
	}
}
