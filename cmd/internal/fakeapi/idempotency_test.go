package fakeapi_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	waits "weir/ingest/await"
)

// charge sends a call with an idempotency key and an order, on a connection of its own. (On a used connection that
// breaks, Go's client itself repeats a request with an Idempotency-Key.)
func charge(t testing.TB, api *fakeapi.API, id, body, text string) (*http.Response, string, error) {
	t.Helper()
	c := client(t)
	c.Transport.(*http.Transport).DisableKeepAlives = true
	return do(t, c, api.URL(), request{path: "/charge", body: body, header: map[string]string{
		"Idempotency-Key": id, fakeapi.OrderHeader: text,
	}})
}

func TestRepeatIsBilledAgainByDefault(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 3})
	for range 2 {
		if _, _, err := charge(t, api, "job", "b", ""); err != nil {
			t.Fatal(err)
		}
	}
	all := api.All()
	if all[0].Seen || !all[1].Seen || api.Totals().Charged != 6 {
		t.Errorf("arrivals %+v", all)
	}
	twice, unidentified := fakeapi.CalledTwice(all, fakeapi.ByHeader("Idempotency-Key"))
	if len(twice) != 1 || twice[0].ID != "job" || twice[0].Billed != 2 || twice[0].Overlap != 0 || unidentified != 0 {
		t.Errorf("called twice: %+v", twice)
	}
}

func TestRepeatIsReplayed(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 3, Idempotency: fakeapi.Idempotency{Repeat: fakeapi.RepeatReplayed}})
	// The work is done and billed, but the answer is lost.
	if _, _, err := charge(t, api, "job", "b", "reset=body; status=201; text=done"); err == nil {
		t.Fatal("answered")
	}
	for range 2 {
		res, body, err := charge(t, api, "job", "b", "status=500")
		if err != nil || res.StatusCode != 201 || body != "done" {
			t.Fatalf("replayed %v %q, %v", res, body, err)
		}
	}
	if res, _, err := charge(t, api, "job", "other", ""); err != nil || res.StatusCode != 422 {
		t.Fatalf("with another body: %v, %v", res, err)
	}
	totals := api.Totals()
	if totals.Charged != 3 || totals.Billed != 1 || totals.Replayed != 2 || totals.Arrivals != 4 {
		t.Errorf("totals %+v", totals)
	}
	if a := api.All()[1]; !a.Seen || a.Ending != fakeapi.Replayed || a.Billed {
		t.Errorf("recorded %+v", a)
	}
}

func TestUnbilledIsCarriedOutAgain(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 3, Idempotency: fakeapi.Idempotency{Repeat: fakeapi.RepeatReplayed}})
	for _, want := range []struct {
		order  string
		status int
	}{{"status=500", 500}, {"status=503", 503}, {"", 200}, {"", 200}} {
		if res, _, err := charge(t, api, "job", "b", want.order); err != nil || res.StatusCode != want.status {
			t.Fatalf("%q: %v, %v", want.order, res, err)
		}
	}
	if totals := api.Totals(); totals.Charged != 3 || totals.Replayed != 1 {
		t.Errorf("totals %+v", totals)
	}
}

func TestRepeatWhileTheFirstRuns(t *testing.T) {
	for _, tt := range []struct {
		repeat fakeapi.Repeat
		status int
	}{{fakeapi.RepeatReplayed, 409}, {fakeapi.RepeatAwaited, 200}} {
		t.Run(string(tt.repeat), func(t *testing.T) {
			api := start(t, fakeapi.Options{Price: 3, Idempotency: fakeapi.Idempotency{Repeat: tt.repeat}})
			working := make(chan struct{})
			trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
				close(working)
				return nil
			}}
			req, err := http.NewRequestWithContext(
				httptrace.WithClientTrace(context.Background(), trace), http.MethodPost, api.URL()+"/charge", strings.NewReader("b"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Idempotency-Key", "job")
			req.Header.Set(fakeapi.OrderHeader, "informational=103; delay=200ms")
			c := client(t)
			first := make(chan error, 1)
			go func() {
				res, err := c.Do(req)
				if err == nil {
					err = res.Body.Close()
				}
				first <- err
			}()
			waits.Receive(t, "the first call to be worked on", working)
			if res, _, err := charge(t, api, "job", "b", ""); err != nil || res.StatusCode != tt.status {
				t.Errorf("the repeat got %v, %v", res, err)
			}
			if err := waits.Receive(t, "the first call to end", first); err != nil {
				t.Error(err)
			}
			if totals := api.Totals(); totals.Billed != 1 || totals.Charged != 3 {
				t.Errorf("totals %+v", totals)
			}
			twice, _ := fakeapi.CalledTwice(api.All(), fakeapi.ByBody)
			if len(twice) != 1 || twice[0].Overlap != 1 || twice[0].Billed != 1 {
				t.Errorf("called twice: %+v", twice)
			}
		})
	}
}

// TestOldestIdempotencyKeysAreForgotten checks that the api remembers at most MaxKeys idempotency keys, the newest.
func TestOldestIdempotencyKeysAreForgotten(t *testing.T) {
	api := start(t, fakeapi.Options{Price: 1, MaxKeys: 2, Idempotency: fakeapi.Idempotency{Repeat: fakeapi.RepeatReplayed}})
	for _, id := range []string{"a", "b", "c", "b", "c", "a"} {
		if _, _, err := charge(t, api, id, "b", ""); err != nil {
			t.Fatal(err)
		}
	}
	if totals := api.Totals(); totals.Billed != 4 || totals.Replayed != 2 {
		t.Errorf("totals %+v", totals)
	}
}
