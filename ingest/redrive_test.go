package ingest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// TestRedriveIDs: a redrive is another submission of its job, and no producer's own job is taken for one, whatever it is
// called.
func TestRedriveIDs(t *testing.T) {
	rule := &ingest.Rule{API: "credit", Methods: []string{"POST"}, MaxBody: 100}
	long := strings.Repeat("x", ingest.MaxIDBytes)
	seen := map[string]string{}
	for _, c := range []struct {
		what, msgID, jobID, redrives string
		id                           string // "" for a refusal
	}{
		{"its own job", "x", "", "", "x"},
		{"the first redrive", "x.r1", "x", "1", "x"},
		{"the second redrive", "x.r2", "x", "2", "x"},
		{"a job called like a redrive", "x.r1", "", "", "x.r1"},
		{"a submission called like a redrive", "x.r2", "x", "", "x"},
		{"another submission, of a redriven job", "x.r3", "x", "1", "x"},
		{"the redrive of a job called like a redrive", "x.r1.r1", "x.r1", "1", "x.r1"},
		{"the redrive of a long id", ingest.RedriveID(long, 1<<31-1), long, "2147483647", long},
		{"a long id of no redrive", long + ".r1", long, "", ""},
		{"a long id of no job", long + ".r1", "", "1", ""},
		{"an id longer than any redrive's", ingest.RedriveID(long, 1<<31-1) + "0", long, "1", ""},
	} {
		h := nats.Header{"Nats-Msg-Id": {c.msgID}}
		if c.jobID != "" {
			h["Weir-Job-Id"] = []string{c.jobID}
		}
		if c.redrives != "" {
			h["Weir-Redrives"] = []string{c.redrives}
		}
		j, refusal := ingest.Parse(ingest.Message{Key: "k", Header: h}, rule, time.Now())
		if (refusal == nil) != (c.id != "") {
			t.Errorf("%s: %v", c.what, refusal)
		}
		if refusal != nil {
			continue
		}
		stored := j.Message("q").Header.Get("Nats-Msg-Id")
		if other, twice := seen[stored]; j.ID != c.id || twice {
			t.Errorf("%s: job %q is stored as %q, as is %s", c.what, j.ID, stored, other)
		}
		seen[stored] = c.what
		back, _ := ingest.Restore(ingest.Message{Key: "k", Header: j.Message("q").Header}, rule, time.Now())
		if back.ID != j.ID || back.DedupeID != j.DedupeID || back.Redrives != j.Redrives {
			t.Errorf("%s: went in as %q %q and comes back as %q %q", c.what, j.ID, j.DedupeID, back.ID, back.DedupeID)
		}
	}
}
