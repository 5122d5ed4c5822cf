package ingest_test

import (
	"strings"
	"testing"
	"time"

	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// TestNotBeforeAndDeadline checks that a job whose deadline comes before its start is refused, and that the refusal
// names both times.
func TestNotBeforeAndDeadline(t *testing.T) {
	for _, c := range []struct {
		notBefore, deadline string
		taken               bool
	}{
		{"1h", "1h", false},
		{"1h1s", "1h", false},
		{"59m", "1h", true},
		{"2026-01-02T16:04:05Z", "60m", false},
		{"2026-01-02T16:04:05Z", "2026-01-02T17:04:05.000000001+01:00", true},
	} {
		h := nats.Header{ingest.HeaderNotBefore: {c.notBefore}, ingest.HeaderDeadline: {c.deadline}}
		j, refusal := ingest.Parse(ingest.Message{Key: "k", Header: h}, &ingest.Rule{API: "a", Methods: []string{"POST"}}, someNow)
		switch {
		case c.taken && refusal != nil:
			t.Errorf("not before %s, deadline %s: refused: %v", c.notBefore, c.deadline, refusal)
		case !c.taken && (refusal == nil || refusal.Code != ingest.Invalid || !strings.Contains(refusal.Description, "could never be called")):
			t.Errorf("not before %s, deadline %s: %v", c.notBefore, c.deadline, refusal)
		}
		if j.NotBefore.IsZero() || j.Deadline.IsZero() {
			t.Errorf("its letter would not know %s and %s", c.notBefore, c.deadline)
		}
	}
}

// TestNotBeforeOfIsBounded checks that a time read from a stream delays a job by at most MostNotBefore.
func TestNotBeforeOfIsBounded(t *testing.T) {
	for value, want := range map[string]time.Time{
		"":  {},
		"x": {}, "-1h": {}, "nan": {},
		"1h":                             someNow.Add(time.Hour),
		"2000000h":                       someNow.Add(ingest.MostNotBefore),
		"9999-12-31T23:59:59.999999999Z": someNow.Add(ingest.MostNotBefore),
		"0001-01-01T00:00:00Z":           {},
	} {
		for _, name := range []string{ingest.HeaderNotBefore, "weir-not-before"} {
			if got := ingest.NotBeforeOf(nats.Header{name: {value}}, someNow); !got.Equal(want) {
				t.Errorf("%s %q: %s, not %s", name, value, got, want)
			}
		}
	}
	if got := ingest.NotBeforeOf(nats.Header{ingest.HeaderNotBefore: {}}, someNow); !got.IsZero() {
		t.Errorf("without a value: %s", got)
	}
}
