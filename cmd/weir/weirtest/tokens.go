package weirtest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"

	"github.com/nats-io/nats.go"
)

// Tokens is a load of calls to a fake language model. The producers estimate how many tokens their calls take. A third
// of the answers are streamed.
type Tokens struct {
	What string
	// Of and In give the estimate: a call that takes n tokens is estimated at n × Of / In.
	Of, In int64
	Learn  string // percentile by which weir corrects estimates; empty: none
	Limit  bucket.Rate
	Calls  bucket.Rate // a limit in requests; zero: none
	Least  float64     // the least part of the limit in tokens that the load must use
	Lines  string      // further lines of the api's configuration
}

// YAML returns the configuration, with %s for the url of the api.
func (l Tokens) YAML() string {
	learn := ""
	if l.Learn != "" {
		learn = ", learn: " + l.Learn
	}
	return fmt.Sprintf(`
apis:
  pay:
    url: %%s
    vendor: openai
    timeout: 20s
    jitter: 20ms
    price:
      - {each: 3, per: 1000000, from: header:X-Input, default: 1, settle: usage:input_tokens%[1]s}
      - {each: 15, per: 1000000, from: header:X-Output, default: 1, settle: usage:output_tokens%[1]s}
    bucket: {rate: 1000/s, burst: 100, capacity: 5000, in_flight: 16}
    limits:
      - {name: tokens, rate: %[2]d/%[3]s, burst: %[4]d, cost: {from: header:Weir-Cost, settle: usage:total_tokens%[1]s}}
      - {name: spend, budget: 1000.00/month}
%[5]s    %[6]s
`, learn, l.Limit.Count, grammar.FormatDuration(l.Limit.Per), l.Limit.Burst, l.calls(), l.Lines)
}

// calls returns the line of the limit in requests.
func (l Tokens) calls() string {
	if l.Calls.Count == 0 {
		return ""
	}
	return fmt.Sprintf("      - {name: requests, rate: %d/%s, burst: %d}\n",
		l.Calls.Count, grammar.FormatDuration(l.Calls.Per), l.Calls.Burst)
}

// Job returns the n-th job, for one of producers keys. Its call takes 20 to 60 tokens.
func (l Tokens) Job(n, producers int) *nats.Msg {
	in, out, stream := int64(10+n%21), int64(10+n*7%21), ""
	if n%3 == 0 {
		stream = `,"stream":true,"stream_options":{"include_usage":true}`
	}
	m := producer.JobFor("pay", fmt.Sprint("k", n%producers), fmt.Sprintf(
		`{"n":%d,"metadata":{"input_tokens":"%d","output_tokens":"%d"}%s}`, n, in, out, stream))
	m.Header.Set("Nats-Msg-Id", fmt.Sprint("job-", n))
	for name, takes := range map[string]int64{"Weir-Cost": in + out, "X-Input": in, "X-Output": out} {
		m.Header.Set(name, fmt.Sprint(max(1, takes*l.Of/l.In)))
	}
	return m
}

// Windows returns the limits against which arrivals at the fake api are checked: the limit in tokens and, if there is
// one, the limit in requests. Their windows are shorter by eps, because the api's times may be off by as much.
func (l Tokens) Windows(eps time.Duration) []fakeapi.UseLimit {
	all := []fakeapi.UseLimit{{
		Name: "tokens", Count: l.Limit.Count, Per: max(l.Limit.Per-eps, 1), Scope: fakeapi.AllKeys,
		Weigh: fakeapi.Weigh{Input: 1, Output: 1},
	}}
	if l.Calls.Count > 0 {
		all = append(all, fakeapi.UseLimit{
			Name: "requests", Count: l.Calls.Count, Per: max(l.Calls.Per-eps, 1), Scope: fakeapi.AllKeys,
			Weigh: fakeapi.Weigh{Call: 1},
		})
	}
	return all
}

// CheckWindows checks by the api's own record that no window exceeded a limit. It returns how much of the limit in
// tokens was used.
func (l Tokens) CheckWindows(t *testing.T, f referee.Referee, arrivals []fakeapi.Arrival) (share float64) {
	t.Helper()
	all := fakeapi.Windows(arrivals, l.Windows(f.Eps())...)
	for _, v := range all {
		t.Logf("%s: %d calls took %d %s, %.0f %% of the limit; the fullest window has %d of %d; stamps are off by %s at most",
			l.What, len(arrivals), v.Used, v.Limit, 100*v.Share, v.Fullest, v.Count, f.Eps())
		if v.Over > 0 {
			t.Errorf("%s: %d windows are over: %+v", l.What, v.Over, v)
		}
	}
	return all[0].Share
}

// TokenRate is the limit for loads that run for a minute. Its burst is large enough for the highest estimate.
var TokenRate = bucket.Rate{Count: 12_000, Per: 10 * time.Second, Burst: 400}

// CallRate is the limit in requests for these loads. It lets a few more calls through than TokenRate.
var CallRate = bucket.Rate{Count: 360, Per: 10 * time.Second, Burst: 10}

// SpendOf returns the output of `weir spend`.
func SpendOf(t *testing.T, nats string) spend.Account {
	t.Helper()
	did := program.Command(t, []string{"WEIR_NATS_URL=" + nats, "WEIR_REPLICAS=1"}, "spend", "--json", "--since", "1d")
	var account spend.Account
	if err := json.Unmarshal([]byte(did.Stdout), &account); err != nil || did.Code != 0 {
		t.Fatalf("weir spend: %v: %+v", err, did)
	}
	return account
}

// Millionths returns an amount of money in millionths.
func Millionths(t *testing.T, text string) int64 {
	t.Helper()
	m, err := grammar.ParseMoney(text)
	if err != nil {
		t.Fatal(err)
	}
	return int64(m)
}

// CheckBill compares the sums of `weir spend` with the api's own bill, to a millionth.
func CheckBill(t *testing.T, nats string, bill fakeapi.Invoice) {
	t.Helper()
	account := SpendOf(t, nats)
	if Millionths(t, account.Spent) != bill.Charged || Millionths(t, account.InDoubt) != 0 {
		t.Errorf("weir spend says %s and %s in doubt, the vendor's bill is %s",
			account.Spent, account.InDoubt, grammar.Money(bill.Charged))
	}
}
