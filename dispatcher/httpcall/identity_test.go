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

// TestCallIdentity checks that the identity of a call says when it began, even if the configuration does not say that
// the api forgets keys: it may say so later.
func TestCallIdentity(t *testing.T) {
	api, begins := &API{Idempotency: &Idempotency{Header: "Key"}}, time.Unix(1_800_000_000, 0)
	got := api.CallIdentity(begins)
	if got != deadletter.KeyedSince(api.KeyIdentity(), begins) || !deadletter.SameKey(got, api.KeyIdentity()) || api.KnowsKeys() != 0 {
		t.Errorf("with an api that forgets nothing it is %q", got)
	}
	api.Idempotency.For = time.Hour
	if again := api.CallIdentity(begins); again != got || api.KnowsKeys() != time.Hour {
		t.Errorf("with an api that forgets after an hour it is %q", again)
	}
	if none := new(API); none.CallIdentity(begins) != "" || none.KnowsKeys() != 0 {
		t.Errorf("without a key it is %q", none.CallIdentity(begins))
	}
}
