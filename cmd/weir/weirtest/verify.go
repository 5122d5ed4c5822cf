package weirtest

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/cmd/weir/internal/ops/verify"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
)

// Verify runs `weir verify` against the rig's server. It returns the report on each api, and the exit code.
func (r *Rig) Verify(args ...string) (found map[string]verify.Report, code int) {
	r.T.Helper()
	out, code := r.Command(append([]string{"verify", "--json"}, args...)...)
	found = map[string]verify.Report{}
	for line := range strings.Lines(out) {
		var v verify.Report
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			r.T.Fatalf("%s: %v", line, err)
		}
		found[v.API] = v
	}
	return found, code
}

// Record stores a call in the ledger.
func (r *Rig) Record(c ledger.Record) {
	r.T.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		r.T.Fatal(err)
	}
	if _, err := r.Operators().PublishMsg(r.T.Context(), &nats.Msg{Subject: c.Subject(), Data: data}); err != nil {
		r.T.Fatal(err)
	}
}

func LimitFound(t *testing.T, v verify.Report, name string) verify.LimitReport {
	t.Helper()
	for _, l := range v.Limits {
		if l.Limit == name {
			return l
		}
	}
	t.Fatalf("nothing is said of limit %s: %+v", name, v)
	return verify.LimitReport{}
}
