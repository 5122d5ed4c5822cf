package store

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"weir/bucket"
	"weir/cmd/weir/internal/serve/clock"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func (s Store) Results(api, key string) []*jetstream.RawStreamMsg {
	s.T.Helper()
	return s.Stored(ledger.ResultsStream, "weir.results."+api+"."+key)
}

func (s Store) Letters(api, key string) []*jetstream.RawStreamMsg {
	s.T.Helper()
	return s.Stored("WEIR_DEAD", "weir.dead."+api+".*."+key)
}

// Ledger returns the records of a key's calls.
func (s Store) Ledger(api, key string) []ledger.Record {
	s.T.Helper()
	var records []ledger.Record
	for _, msg := range s.Stored(ledger.CallsStream, "weir.calls."+api+"."+key) {
		var c ledger.Record
		if err := json.Unmarshal(msg.Data, &c); err != nil {
			s.T.Fatal(err)
		}
		records = append(records, c)
	}
	return records
}

// Ended waits until at least n jobs of a key have ended and the key has no unfinished job.
func (s Store) Ended(api, key string, n int) {
	s.T.Helper()
	s.Eventually("the end of the jobs of "+api+"/"+key, func() bool {
		return len(s.Results(api, key))+len(s.Letters(api, key)) >= n && s.Depth(api, key) == 0
	})
}

// End is the expected end of a job, as weir reports it.
type End struct {
	As       string // done, or a letter's reason
	Status   int
	Attempts int
	Billed   deadletter.Billed
	Ledger   []string // outcomes of its calls
}

// apart is the largest difference between two times of one call that come from different clocks. The slot comes from
// the schedule's clock, and the start from the machine's.
var apart = bucket.Micros(0).Until(clock.Noise)

// CheckEnd waits for the end of a key's only job, and compares it with want.
func (s Store) CheckEnd(t *testing.T, api, key, id, body string, want End) {
	t.Helper()
	s.Ended(api, key, 1)
	results, letters, ledger := s.Results(api, key), s.Letters(api, key), s.Ledger(api, key)
	if len(results)+len(letters) != 1 {
		t.Fatalf("%d results and %d letters of one job", len(results), len(letters))
	}
	got := endIn(t, results, letters)
	if len(results) == 1 {
		if n := Number(t, results[0].Header, "Weir-Calls"); n != len(ledger) || results[0].Header.Get("Weir-Job-Id") != id {
			t.Errorf("job %s, %d calls of %d: %v", id, n, len(ledger), results[0].Header)
		}
	} else if h := letters[0].Header; string(letters[0].Data) != body || h.Get("Weir-Job-Id") != id || h.Get("Weir-Dead-Detail") == "" {
		t.Errorf("a letter of job %s with the body %q: %v", id, letters[0].Data, h)
	}
	for i, c := range ledger {
		got.Ledger = append(got.Ledger, c.Outcome)
		if c.Call != i+1 || c.Job != id || c.Final != (i == len(ledger)-1) || c.Price != "0.25" || c.Planned.IsZero() ||
			c.Started.Before(c.Planned.Add(-apart)) || c.Ended.Before(c.Started) {
			t.Errorf("record %d does not make sense: %+v", i+1, c)
		}
	}
	if !sameEnd(got, want) {
		t.Errorf("ended as %+v, want %+v", got, want)
	}
}

// endIn returns the only end in results and letters, without the outcomes in the ledger.
func endIn(t *testing.T, results, letters []*jetstream.RawStreamMsg) End {
	t.Helper()
	if len(results) > 0 {
		h := results[0].Header
		return End{As: h.Get("Weir-Outcome"), Status: Number(t, h, "Weir-Status"), Attempts: Number(t, h, "Weir-Attempts")}
	}
	h := letters[0].Header
	return End{
		As: h.Get("Weir-Dead-Reason"), Status: Number(t, h, "Weir-Dead-Status"), Attempts: Number(t, h, "Weir-Dead-Attempts"),
		Billed: deadletter.Billed(h.Get("Weir-Dead-Billed")),
	}
}

func sameEnd(a, b End) bool { return reflect.DeepEqual(a, b) }

func Number(t *testing.T, h nats.Header, name string) int {
	t.Helper()
	n, err := strconv.Atoi(h.Get(name))
	if err != nil {
		t.Errorf("header %s: %v", name, err)
	}
	return n
}

// RequireExpired waits for a job's end and fails unless the job has expired and has a letter.
func (s Store) RequireExpired(ends *nats.Subscription, key, status string) {
	s.T.Helper()
	end, err := ends.NextMsg(await.Patience)
	if err != nil {
		s.T.Fatalf("the job's end is not told: %v", err)
	}
	letters := s.Letters("pay", key)
	if end.Header.Get("Weir-Outcome") != "expired" || len(letters) == 0 {
		s.T.Fatalf("the end is told as %v; %d letters", end.Header, len(letters))
	}
	last := letters[len(letters)-1]
	RequireStatus(s.T, last, "expired", status)
	if got := last.Header.Get("Weir-Dead-Detail"); !strings.HasPrefix(got, "the deadline passed before its call; it had waited ") {
		s.T.Errorf("the letter of a job that waited says: %s", got)
	}
}
