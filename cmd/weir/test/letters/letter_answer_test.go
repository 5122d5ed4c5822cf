package letters

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/store"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
)

func answerIn(t *testing.T, h nats.Header) program.Answered {
	t.Helper()
	body, err := base64.StdEncoding.DecodeString(h.Get("Weir-Answer"))
	if err != nil {
		t.Errorf("Weir-Answer: %v", err)
	}
	return program.Answered{Status: h.Get("Weir-Answer-Status"), ContentType: h.Get("Weir-Answer-Content-Type"), Body: string(body), Cut: h.Get("Weir-Answer-Cut") != ""}
}

// TestLetterKeepsTheAnswer: whatever the api answered last to a job that became a letter stands in the letter, bounded and without
// weir's secrets; commands show it, and a redrive leaves it behind.
func TestLetterKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	const secret, problem = "sk-live-0123456789", `{"error":"no such customer"}`
	binary := "\xff\xfe\x01\x02"
	typed := "header=Content-Type: application/problem+json;"
	api := weirtest.StartOrdered(t, map[string][]string{
		"refused":   {"status=422;" + typed + "text=" + problem},
		"exhausted": {"status=500;text=first", "status=502;text=second"},
		"no-answer": {"status=500;text=boom", "close"},
		"binary":    {"status=400;text=" + binary},
		"long":      {"status=400;size=1000000"},
		"echo":      {"status=400;text=you sent Bearer " + secret + ", which is no good"},
		"empty":     {"status=404;text="},
		"nothing":   {"close", "close"},
	})
	dir := t.TempDir()
	weirtest.WriteFile(t, filepath.Join(dir, "token"), secret)
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    headers: {Authorization: "Bearer ${file:%s}"}
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 2, min: 5ms, max: 20ms}
`, api.URL(), filepath.Join(dir, "token")))
	for key, want := range map[string]program.Answered{
		"refused":   {Status: "422", ContentType: "application/problem+json", Body: problem, Cut: false},
		"exhausted": {Status: "502", ContentType: "text/plain; charset=utf-8", Body: "second", Cut: false},
		"no-answer": {Status: "500", ContentType: "text/plain; charset=utf-8", Body: "boom", Cut: false},
		"binary":    {Status: "400", ContentType: "text/plain; charset=utf-8", Body: binary, Cut: false},
		"long":      {Status: "400", ContentType: "text/plain; charset=utf-8", Body: strings.Repeat("x", 16<<10), Cut: true},
		"echo":      {Status: "400", ContentType: "text/plain; charset=utf-8", Body: "you sent Bearer ***, which is no good", Cut: false},
		"nothing":   {},
	} {
		r.Producer().Pay(key, "job-"+key)
		r.Store().Ended("pay", key, 1)
		letters := r.Store().Letters("pay", key)
		if len(letters) != 1 {
			t.Fatalf("%s: %d letters", key, len(letters))
		}
		got := answerIn(t, letters[0].Header)
		if want.ContentType != "" && want.ContentType != "application/problem+json" {
			got.ContentType = want.ContentType // the fake api's own
		}
		if got != want {
			t.Errorf("%s: the letter keeps %s, want %s", key, got, want)
		}
		for _, c := range r.Store().Stored(ledger.CallsStream, "weir.calls.pay."+key) {
			if len(c.Data) > 4<<10 || strings.Contains(string(c.Data), secret) {
				t.Errorf("%s: a record of %d bytes, or with a secret", key, len(c.Data))
			}
		}
		r.CLI().CheckShown(t, letters[0].Sequence, want)
	}
	did, code := r.CLI().Redrive("--key", "refused")
	if code != 0 || did.Redriven != 1 {
		t.Fatalf("redrive: %d, %+v", code, did)
	}
	r.Store().Ended("pay", "refused", 1)
	if n := len(r.Store().Results("pay", "refused")); n != 1 {
		t.Errorf("%d results of a letter that was redriven", n)
	}
	refused := r.Producer().Submit("weir.jobs.pay.forged", nil, map[string]string{"Weir-Answer-Status": "200"})
	if refused.Error == nil || refused.Error.ErrCode != 20400 {
		t.Errorf("a producer's answer is taken: %+v", refused)
	}
}

// TestLetterKeepsTheAnswerAfterADeath: a worker that died between the record and the letter, or between two attempts, leaves the
// answer in the ledger.
func TestLetterKeepsTheAnswerAfterADeath(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"waits": {"status=500;text=before the death", "close"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  once: {url: %[1]s, bucket: {rate: 1000/s, capacity: 50}}
  pay: {url: %[1]s, idempotency: {header: Idempotency-Key}, bucket: {rate: 1000/s, capacity: 50}, retry: {attempts: 2, min: 1s, max: 1s}}
`, api.URL()))
	r.Producer().Pay("waits", "job-waits")
	r.Eventually("the record of the first attempt", func() bool { return len(r.Store().Ledger("pay", "waits")) == 1 })
	r.Stop()
	r.Offline(func(o *store.Offline) {
		o.Leave("once", "died", store.Left{Intents: []int{1}, Record: &ledger.Record{
			Call: 1, Attempt: 1, Sent: true, Status: 422, Outcome: "rejected", Final: true,
			Answer: &deadletter.Answer{Status: 422, ContentType: "text/plain", Body: []byte("no such order"), Cut: true},
		}})
	})
	r.Start()
	for key, want := range map[string]program.Answered{
		"once/died": {Status: "422", ContentType: "text/plain", Body: "no such order", Cut: true}, "pay/waits": {Status: "500", ContentType: "", Body: "before the death", Cut: false},
	} {
		name, key, _ := strings.Cut(key, "/")
		r.Store().Ended(name, key, 1)
		letters := r.Store().Letters(name, key)
		if len(letters) != 1 {
			t.Fatalf("%s: %d letters", key, len(letters))
		}
		got := answerIn(t, letters[0].Header)
		if want.ContentType == "" {
			got.ContentType = ""
		}
		if got != want {
			t.Errorf("%s: the letter keeps %s, want %s", key, got, want)
		}
	}
	if n := len(api.Arrivals("died")); n != 0 {
		t.Errorf("a job that had ended was called %d times", n)
	}
}
