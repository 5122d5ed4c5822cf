package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
)

// answered is what a letter keeps of an answer.
type answered struct {
	status, contentType, body string
	cut                       bool
}

func (a answered) String() string {
	return fmt.Sprintf("%s %s, %d bytes, cut %v: %.100q", a.status, a.contentType, len(a.body), a.cut, a.body)
}

func answerIn(t *testing.T, h nats.Header) answered {
	t.Helper()
	body, err := base64.StdEncoding.DecodeString(h.Get("Weir-Answer"))
	if err != nil {
		t.Errorf("Weir-Answer: %v", err)
	}
	return answered{h.Get("Weir-Answer-Status"), h.Get("Weir-Answer-Content-Type"), string(body), h.Get("Weir-Answer-Cut") != ""}
}

// TestLetterKeepsTheAnswer: whatever the api answered last to a job that became a letter stands in the letter, bounded and without
// weir's secrets; commands show it, and a redrive leaves it behind.
func TestLetterKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	const secret, problem = "sk-live-0123456789", `{"error":"no such customer"}`
	binary := "\xff\xfe\x01\x02"
	typed := "header=Content-Type: application/problem+json;"
	api := startOrdered(t, map[string][]string{
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
	writeFile(t, filepath.Join(dir, "token"), secret)
	r := rigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    headers: {Authorization: "Bearer ${file:%s}"}
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 2, min: 5ms, max: 20ms}
`, api.URL(), filepath.Join(dir, "token")))
	for key, want := range map[string]answered{
		"refused":   {"422", "application/problem+json", problem, false},
		"exhausted": {"502", "text/plain; charset=utf-8", "second", false},
		"no-answer": {"500", "text/plain; charset=utf-8", "boom", false},
		"binary":    {"400", "text/plain; charset=utf-8", binary, false},
		"long":      {"400", "text/plain; charset=utf-8", strings.Repeat("x", 16<<10), true},
		"echo":      {"400", "text/plain; charset=utf-8", "you sent Bearer ***, which is no good", false},
		"nothing":   {},
	} {
		r.pay(key, "job-"+key)
		r.ended("pay", key, 1)
		letters := r.letters("pay", key)
		if len(letters) != 1 {
			t.Fatalf("%s: %d letters", key, len(letters))
		}
		got := answerIn(t, letters[0].Header)
		if want.contentType != "" && want.contentType != "application/problem+json" {
			got.contentType = want.contentType // the fake api's own
		}
		if got != want {
			t.Errorf("%s: the letter keeps %s, want %s", key, got, want)
		}
		for _, c := range r.stored(ledger.CallsStream, "weir.calls.pay."+key) {
			if len(c.Data) > 4<<10 || strings.Contains(string(c.Data), secret) {
				t.Errorf("%s: a record of %d bytes, or with a secret", key, len(c.Data))
			}
		}
		r.checkShown(t, letters[0].Sequence, want)
	}
	did, code := r.redrive("--key", "refused")
	if code != 0 || did.Redriven != 1 {
		t.Fatalf("redrive: %d, %+v", code, did)
	}
	r.ended("pay", "refused", 1)
	if n := len(r.results("pay", "refused")); n != 1 {
		t.Errorf("%d results of a letter that was redriven", n)
	}
	refused := r.submit("weir.jobs.pay.forged", nil, map[string]string{"Weir-Answer-Status": "200"})
	if refused.Error == nil || refused.Error.ErrCode != 20400 {
		t.Errorf("a producer's answer is taken: %+v", refused)
	}
}

// checkShown holds what dead show says of a letter's answer.
func (r *rig) checkShown(t *testing.T, seq uint64, want answered) {
	t.Helper()
	text, _ := r.command("dead", "show", fmt.Sprint(seq))
	out, code := r.command("dead", "show", fmt.Sprint(seq), "--json")
	var shown struct {
		Headers map[string]any
		Answer  *struct {
			Status         int
			ContentType    string `json:"content_type"`
			Body, Encoding string
			Cut            bool
		}
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 {
		t.Fatalf("dead show: %d, %v", code, err)
	}
	for name := range shown.Headers {
		if strings.HasPrefix(name, "Weir-Answer") {
			t.Errorf("%s is shown as a header of the job", name)
		}
	}
	if want == (answered{}) {
		if shown.Answer != nil {
			t.Errorf("an answer is shown where there was none: %+v", shown.Answer)
		}
		return
	}
	if shown.Answer == nil {
		t.Fatal("no answer is shown")
	}
	body := shown.Answer.Body
	if shown.Answer.Encoding == "base64" {
		data, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			t.Error(err)
		}
		body = string(data)
	} else if !strings.Contains(text, body) {
		t.Errorf("people are not shown %.100q", body)
	}
	if body != want.body || fmt.Sprint(shown.Answer.Status) != want.status || shown.Answer.Cut != want.cut {
		t.Errorf("shown is %.200s", out)
	}
}

// TestLetterKeepsTheAnswerAfterADeath: a worker that died between the record and the letter, or between two attempts, leaves the
// answer in the ledger.
func TestLetterKeepsTheAnswerAfterADeath(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, map[string][]string{"waits": {"status=500;text=before the death", "close"}})
	r := rigOn(t, api, fmt.Sprintf(`
apis:
  once: {url: %[1]s, bucket: {rate: 1000/s, capacity: 50}}
  pay: {url: %[1]s, idempotency: {header: Idempotency-Key}, bucket: {rate: 1000/s, capacity: 50}, retry: {attempts: 2, min: 1s, max: 1s}}
`, api.URL()))
	r.pay("waits", "job-waits")
	r.eventually("the record of the first attempt", func() bool { return len(r.ledger("pay", "waits")) == 1 })
	r.stop()
	r.offline(func(o *offline) {
		o.leave("once", "died", left{intents: []int{1}, record: &ledger.Record{
			Call: 1, Attempt: 1, Sent: true, Status: 422, Outcome: "rejected", Final: true,
			Answer: &deadletter.Answer{Status: 422, ContentType: "text/plain", Body: []byte("no such order"), Cut: true},
		}})
	})
	r.start()
	for key, want := range map[string]answered{
		"once/died": {"422", "text/plain", "no such order", true}, "pay/waits": {"500", "", "before the death", false},
	} {
		name, key, _ := strings.Cut(key, "/")
		r.ended(name, key, 1)
		letters := r.letters(name, key)
		if len(letters) != 1 {
			t.Fatalf("%s: %d letters", key, len(letters))
		}
		got := answerIn(t, letters[0].Header)
		if want.contentType == "" {
			got.contentType = ""
		}
		if got != want {
			t.Errorf("%s: the letter keeps %s, want %s", key, got, want)
		}
	}
	if n := len(api.Arrivals("died")); n != 0 {
		t.Errorf("a job that had ended was called %d times", n)
	}
}
