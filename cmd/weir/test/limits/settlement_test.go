package limits

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"

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
// limit of an account, that weir verify passes and tells by how much, and that this stays so over a change of the limit.
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
		r.Send(api, "k", nats.Header{"Weir-Cost": {estimate}, "Weir-Not-Before": {begins}}, "{}")
		r.Eventually("the call's record", func() bool { return len(r.Ledger(api, "k")) == 1 })
	}
	check := func(api string, worst, allowed, beyond int64) {
		t.Helper()
		found, code := r.Verify()
		l := weirtest.LimitFound(t, found[api], "acme/tokens")
		if code != 0 || l.Verdict != bucket.Pass || l.Worst != worst || l.Allowed != allowed || l.Beyond != beyond {
			t.Errorf("verify ends with %d and says %+v, want %d reserved of %d, and %d beyond", code, l, worst, allowed, beyond)
		}
	}
	call("chat", "60", 0)
	check("chat", 60, 100, 50)
	if said := r.Must("verify"); !strings.Contains(said, "acme/tokens: calls took more than they had reserved: up to 50 over 100 per 1h") {
		t.Errorf("verify says %s", said)
	}
	r.Follow(tokensYAML("200"))
	call("search", "10", 3*time.Second) // a call just after a change may still go by the former limit
	check("search", 70, 200, 10)
}
