package ingest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// TestRedriveIDs checks that a redrive is another submission of its job, and that no other job's id makes it a redrive.
// Before weir refused such ids, producers could use them, and such jobs may still be redriven.
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
		j, refusal := ingest.Parse(ingest.Message{Key: "k", Header: h, Redrive: true}, rule, time.Now())
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

// TestProducersRedriveNothing checks that a producer's job with headers that only weir may write is refused, in any
// case of letters and whatever else is wrong with the job. Its letter does not count redrives, and does not have the id
// of the job that it claimed to be.
func TestProducersRedriveNothing(t *testing.T) {
	rule := &ingest.Rule{API: "credit", Methods: []string{"POST"}, MaxBody: 100}
	long := strings.Repeat("x", ingest.MaxIDBytes)
	for what, c := range map[string]struct {
		header nats.Header
		body   string
		code   ingest.Code
	}{
		"a whole redrive":          {nats.Header{"Nats-Msg-Id": {"x.r1"}, "Weir-Job-Id": {"x"}, "Weir-Redrives": {"1"}}, "", ingest.Invalid},
		"in other letters":         {nats.Header{"nats-msg-id": {"x.r1"}, "WEIR-JOB-ID": {"x"}, "weir-redrives": {"1"}}, "", ingest.Invalid},
		"of a long id":             {nats.Header{"Nats-Msg-Id": {long + ".r1"}, "Weir-Job-Id": {long}, "Weir-Redrives": {"1"}}, "", ingest.Invalid},
		"a count alone":            {nats.Header{"Weir-Job-Id": {"x"}, "Weir-Redrives": {"7"}}, "", ingest.Invalid},
		"none so far":              {nats.Header{"Nats-Msg-Id": {"x"}, "Weir-Redrives": {"0"}}, "", ingest.Invalid},
		"a count twice":            {nats.Header{"Nats-Msg-Id": {"x"}, "Weir-Redrives": {"1", "2"}}, "", ingest.Invalid},
		"a redrive's message id":   {nats.Header{"Nats-Msg-Id": {"x.r1"}}, "", ingest.Invalid},
		"the last redrive's":       {nats.Header{"Nats-Msg-Id": {"x.r2147483647"}, "Weir-Job-Id": {"x"}}, "", ingest.Invalid},
		"a job id like a redrive":  {nats.Header{"Nats-Msg-Id": {"y"}, "Weir-Job-Id": {"x.r12"}}, "", ingest.Invalid},
		"in a job that is too big": {nats.Header{"Nats-Msg-Id": {"x.r1"}, "Weir-Job-Id": {"x"}, "Weir-Redrives": {"1"}}, strings.Repeat("b", 101), ingest.TooLarge},
		"with a bad method":        {nats.Header{"Nats-Msg-Id": {"x.r1"}, "Weir-Job-Id": {"x"}, "Weir-Redrives": {"1"}, "Weir-Method": {"GET"}}, "", ingest.Invalid},
	} {
		j, refusal := ingest.Parse(ingest.Message{Key: "k", Header: c.header, Body: []byte(c.body)}, rule, time.Now())
		if refusal == nil || refusal.Code != c.code {
			t.Errorf("%s: %v", what, refusal)
		}
		if j.Redrives != 0 || j.ID == "" || strings.HasPrefix(j.ID, "x") || j.DedupeID != j.ID {
			t.Errorf("%s: its letter is of job %q, submission %q, redriven %d times", what, j.ID, j.DedupeID, j.Redrives)
		}
	}
	for _, id := range []string{"x.r", "x.r0", "x.r01", "x.r-1", "x.r1x", "x.r2147483648", ".r1", "r1", "x.R1", "x.r1.", "report.rtf"} {
		j, refusal := ingest.Parse(ingest.Message{Key: "k", Header: nats.Header{"Nats-Msg-Id": {id}}}, rule, time.Now())
		if refusal != nil || j.ID != id {
			t.Errorf("%q, which is no redrive's id, is refused: %v", id, refusal)
		}
	}
}
