package limits

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
)

// tokensYAML returns two apis of an account whose limit in tokens lets so much through.
func tokensYAML(quota string) string {
	return `
accounts:
  acme: {limits: [{name: tokens, quota: ` + quota + `/1h, window: sliding, cost: {from: header:Weir-Cost, settle: json:/n}}]}
apis:
  chat: {url: %[1]s/chat, account: acme, bucket: {rate: 100/s, capacity: 50}}
  search: {url: %[1]s/search, account: acme, bucket: {rate: 100/s, capacity: 50}}
`
}

// TestVerifyTellsSettlementsApart checks that calls which take more than they had reserved make a window exceed the
// limit of an account, that weir verify passes and tells by how much, and that this stays so over a change of the
// limit.
func TestVerifyTellsSettlementsApart(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
		text := `{"n":150}`
		if strings.HasPrefix(q.Path, "/search") {
			text = `{"n":60}`
		}
		return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: text}
	}}, tokensYAML("100"))
	call := func(api, estimate string, after time.Duration) {
		t.Helper()
		begins := time.Now().Add(after).UTC().Format(time.RFC3339Nano)
		r.Producer().Send(api, "k", nats.Header{"Weir-Cost": {estimate}, "Weir-Not-Before": {begins}}, "{}")
		r.Eventually("the call's record", func() bool { return len(r.Store().Ledger(api, "k")) == 1 })
	}
	check := func(api string, worst, allowed, beyond int64) {
		t.Helper()
		found, code := r.CLI().Verify()
		l := program.LimitFound(t, found[api], "acme/tokens")
		if code != 0 || l.Verdict != bucket.Pass || l.Worst != worst || l.Allowed != allowed || l.Beyond != beyond {
			t.Errorf("verify ends with %d and says %+v, want %d reserved of %d, and %d beyond", code, l, worst, allowed, beyond)
		}
	}
	call("chat", "60", 0)
	check("chat", 60, 100, 50)
	if said := r.CLI().Must("verify"); !strings.Contains(said, "acme/tokens: calls took more than they had reserved: up to 50 over 100 per 1h") {
		t.Errorf("verify says %s", said)
	}
	r.Follow(tokensYAML("200"))
	call("search", "10", 3*time.Second) // a call just after a change may still go by the former limit
	check("search", 70, 200, 10)
}

// TestReservationsOutliveTheirProducers checks that what a call has reserved stays reserved when the producer of its
// job disconnects while the call runs, and that the call's settlement gives back what it did not take.
func TestReservationsOutliveTheirProducers(t *testing.T) {
	t.Parallel()
	var begun atomic.Int32
	answers := make(chan struct{})
	release := sync.OnceFunc(func() { close(answers) })
	r := weirtest.NewRig(t, fakeapi.Options{Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		begun.Add(1)
		select {
		case <-answers:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: `{"n":10}`}
	}}, tokensYAML("100"))
	defer release()
	conn, err := nats.Connect(r.Worker.NATSURL(), nats.Timeout(weirtest.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	job := producer.JobFor("chat", "gone", "{}")
	job.Header.Set("Weir-Cost", "60")
	if _, err := conn.RequestMsg(job, weirtest.Patience); err != nil {
		t.Fatal(err)
	}
	r.Eventually("the producer's call", func() bool { return begun.Load() == 1 })
	conn.Close()
	r.Producer().Send("search", "k", nats.Header{"Weir-Cost": {"60"}}, "{}")
	r.Eventually("the other job to wait for the account's limit", func() bool {
		said, code := r.CLI().Run("show", "search", "k")
		return code == 0 && strings.Contains(said, "limit acme/tokens") && strings.Contains(said, "60 of 100 used")
	})
	if n := begun.Load(); n != 1 {
		t.Errorf("%d calls that reserve 60 units each, of 100", n)
	}
	release()
	r.Store().Ended("chat", "gone", 1)
	r.Store().Ended("search", "k", 1)
	r.Eventually("both records", func() bool { return r.Store().Messages("WEIR_CALLS") == 2 })
	if v, code := r.CLI().Verify(); code != 0 || program.LimitFound(t, v["search"], "acme/tokens").Worst != 20 {
		t.Errorf("verify ends with %d: %+v", code, v)
	}
}

// streamed is a job's body that asks a model for a stream, which ends with the tokens used.
const streamed = `{"stream":true,"max_tokens":20,"stream_options":{"include_usage":true}}`

// TestStreamsOfJSONLines has a model answer in JSON lines. It checks that the result is the whole stream, that the last
// line that tells the tokens settles the call, and that weir spend and the metrics add them up.
func TestStreamsOfJSONLines(t *testing.T) {
	t.Parallel()
	const form = "application/x-ndjson"
	r := weirtest.NewRig(t, fakeapi.Options{Vendor: fakeapi.OpenAI}, modelYAML(fakeapi.OpenAI, "forward_headers: [Accept]"))
	input := 0
	for i, key := range []string{"a", "a", "b"} {
		r.Producer().Send("pay", key, nats.Header{
			"Nats-Msg-Id": {strconv.Itoa(i)}, "Weir-Path": {"/v1/chat/completions"}, "Weir-Cost": {"100"}, "Weir-Header-Accept": {form},
		}, streamed)
	}
	r.Store().Ended("pay", "a", 2)
	r.Store().Ended("pay", "b", 1)
	r.Eventually("the calls' records", func() bool { return r.Store().Messages("WEIR_CALLS") == 3 })
	result := r.Store().Results("pay", "b")[0]
	if got := result.Header.Get("Content-Type"); got != form || strings.Count(string(result.Data), "\n") != 3 {
		t.Errorf("the result is of type %s:\n%s", got, result.Data)
	}
	for _, c := range append(r.Store().Ledger("pay", "a"), r.Store().Ledger("pay", "b")...) {
		input = int(c.Usage["input_tokens"])
		if want := ledger.Money(int64(3*input + 15*10)); c.Usage["output_tokens"] != 10 || input == 0 || c.Price != want || c.Unsettled != nil {
			t.Errorf("%+v, want the price %s", c, want)
		}
	}
	weirtest.CheckBill(t, r.Worker.NATSURL(), fakeapi.Bills(r.API.All()))
	said := r.CLI().Must("spend", "--by", "key", "--since", "1d")
	for _, want := range []string{
		`API/KEY +CALLS +SPENT +IN DOUBT .*INPUT_TOKENS.* OUTPUT_TOKENS`,
		fmt.Sprintf(`pay/a +2 +%s +0.00 .*\b%d\b.* 20\b`, ledger.Money(int64(2*(3*input+150))), 2*input),
		fmt.Sprintf(`pay/b +1 +%s +0.00 .*\b%d\b.* 10\b`, ledger.Money(int64(3*input+150)), input),
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("weir spend lacks %s:\n%s", want, said)
		}
	}
	metrics := r.HTTP().Get("/metrics")
	for name, want := range map[string]int{"input_tokens": 3 * input, "output_tokens": 30} {
		if line := fmt.Sprintf("weir_usage_total{api=\"pay\",name=%q} %d\n", name, want); !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// TestCutStreamsAreRepeatedUnderTheirKey breaks off a stream of an API that takes idempotency keys. It checks that weir
// calls again under the same key, and stores the whole second answer.
func TestCutStreamsAreRepeatedUnderTheirKey(t *testing.T) {
	t.Parallel()
	cut := fakeapi.Options{
		Vendor: fakeapi.OpenAI, Headers: []string{"Idempotency-Key"}, Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			b := fakeapi.OpenAI.Answer(q)
			if q.Number == 1 {
				b.Fault = fakeapi.FaultResetAnswer
			}
			return b
		},
	}
	r := weirtest.NewRig(t, cut, modelYAML(fakeapi.OpenAI, "idempotency: {header: Idempotency-Key}", "retry: {min: 5ms, max: 20ms}",
		"limits: [{name: spend, budget: 1.00/1h, window: sliding}]"))
	r.Producer().Send("pay", "k", nats.Header{"Nats-Msg-Id": {"one"}, "Weir-Path": {"/v1/chat/completions"}, "Weir-Cost": {"100"}}, streamed)
	r.Store().Ended("pay", "k", 1)
	r.Eventually("the calls' records", func() bool { return r.Store().Messages("WEIR_CALLS") == 2 })
	calls := r.API.All()
	if len(calls) != 2 || calls[0].Header("Idempotency-Key") != "one" || calls[1].Header("Idempotency-Key") != "one" {
		t.Fatalf("the calls are %+v", calls)
	}
	results := r.Store().Results("pay", "k")
	if len(results) != 1 || !strings.Contains(string(results[0].Data), "data: [DONE]") || results[0].Header.Get("Weir-Calls") != "2" {
		t.Errorf("the results are %v", results)
	}
	if records := r.Store().Ledger("pay", "k"); records[0].Outcome != "retry" || records[0].Unsettled == nil || records[1].Outcome != ledger.Done || records[1].Unsettled != nil {
		t.Errorf("the records are %+v", records)
	}
}

// TestDeadlinesAreJudgedByTheMostFavourableSettlement has jobs that estimate far more than their calls take. It checks
// that weir accepts the jobs that meet their deadlines if each call takes the least, and calls them in time. Jobs whose
// calls take what they say are refused.
func TestDeadlinesAreJudgedByTheMostFavourableSettlement(t *testing.T) {
	t.Parallel()
	answers := make(chan struct{})
	release := sync.OnceFunc(func() { close(answers) })
	r := weirtest.NewRig(t, fakeapi.Options{Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		select {
		case <-answers:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: `{"n":1}`}
	}}, `
apis:
  settled:
    url: %[1]s/settled
    bucket: {rate: 100/s, capacity: 50}
    limits: [{name: tokens, quota: 100/1h, window: sliding, cost: {from: header:Weir-Cost, settle: json:/n}}]
  fixed:
    url: %[1]s/fixed
    bucket: {rate: 100/s, capacity: 50}
    limits: [{name: tokens, quota: 100/1h, window: sliding, cost: {from: header:Weir-Cost}}]
`)
	defer release()
	var accepted int
	deadline := time.Now().Add(10 * time.Minute).UTC().Format(time.RFC3339)
	submit := func(api string) producer.Answer {
		accepted++
		return r.Producer().Submit("weir.jobs."+api+".k", []byte("{}"), map[string]string{
			"Nats-Msg-Id": strconv.Itoa(accepted), "Weir-Cost": "60", "Weir-Deadline": deadline,
		})
	}
	r.Eventually("a job to be refused whose deadline would pass", func() bool {
		a := submit("fixed")
		return a.Error != nil && a.Error.Code == http.StatusTooManyRequests
	})
	accepted = 0
	r.Eventually("a job to be forecast for after its deadline", func() bool {
		a := submit("settled")
		if a.Error != nil {
			t.Fatalf("a job was refused: %+v", a.Error)
		}
		return a.ETAms != nil && time.Duration(*a.ETAms)*time.Millisecond > 10*time.Minute
	})
	release()
	r.Eventually("the jobs' ends", func() bool { return len(r.Store().Results("settled", "k")) == accepted })
}
