package ledger

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/bucket"
	"weir/deadletter"
)

// TestUnits checks the units from which a lost count is rebuilt. A cost that was not written down counts as what
// every call takes.
func TestUnits(t *testing.T) {
	tokens := &bucket.Limit{Name: "tokens", Quota: &bucket.Quota{Count: 1000}}
	spend := &bucket.Limit{Name: "spend", Budget: &bucket.Budget{}}
	for name, c := range map[string]struct {
		record        Record
		tokens, spend int64
	}{
		"written down":      {Record{Sent: true, Price: "0.40", Limits: []string{"spend", "tokens"}, Costs: []int64{0, 7}}, 7, 0},
		"of other limits":   {Record{Sent: true, Price: "0.40", Limits: []string{"former"}, Costs: []int64{9}, Billed: deadletter.BilledYes}, 1, 400_000},
		"not known":         {Record{Sent: true, Price: "0.40", Limits: []string{"spend", "tokens"}, Billed: deadletter.BilledUnknown}, 1, 400_000},
		"free":              {Record{Sent: true, Price: "0.40", Billed: deadletter.NotBilled}, 1, 0},
		"never reached it":  {Record{Price: "0.40", Limits: []string{"tokens"}, Costs: []int64{7}, Billed: deadletter.NotBilled}, 0, 0},
		"price of no money": {Record{Sent: true, Price: "?", Billed: deadletter.BilledYes}, 1, 0},
	} {
		if got := c.record.Units(tokens); got != c.tokens {
			t.Errorf("%s: %d tokens, want %d", name, got, c.tokens)
		}
		if got := c.record.Units(spend); got != c.spend {
			t.Errorf("%s: %d of the budget, want %d", name, got, c.spend)
		}
	}
}

// TestRecordIsSmall checks that the ledger keeps the beginning of an answer, while the letter that is written
// next still has all of it.
func TestRecordIsSmall(t *testing.T) {
	c := &Record{Answer: &deadletter.Answer{Status: 500, Body: []byte(strings.Repeat("x", deadletter.MaxAnswer))}}
	var stored Record
	if err := json.Unmarshal(c.Message().Data, &stored); err != nil {
		t.Fatal(err)
	}
	if len(stored.Answer.Body) != recordedAnswer || !stored.Answer.Cut || len(c.Answer.Body) != deadletter.MaxAnswer {
		t.Errorf("the ledger keeps %d bytes", len(stored.Answer.Body))
	}
}

// TestResultID checks that results are read under their ids, and nothing else is.
func TestResultID(t *testing.T) {
	type result struct {
		source   string
		seq      uint64
		accepted bucket.Micros
		ok       bool
	}
	for id, want := range map[string]result{
		"result." + OriginOf("Q", 7, 9): {"Q", 7, 9, true},
		"result.Q.7":                    {},
		"":                              {},
		"result.Q":                      {},
		"result.Q.7.9.1":                {},
		"letter.Q.7":                    {},
		"result.Q.seven.9":              {},
		"result.Q.7.nine":               {},
	} {
		var got result
		if got.source, got.seq, got.accepted, got.ok = ParseResultID(id); got != want {
			t.Errorf("%q is read as %+v, want %+v", id, got, want)
		}
	}
}

// TestTook checks that a call is charged to the limits that were in force when it was made, and to no others.
func TestTook(t *testing.T) {
	c := Record{Sent: true, Limits: []string{"tokens"}, Costs: []int64{7}}
	if units, in := c.Took(&bucket.Limit{Name: "tokens"}); units != 7 || !in {
		t.Errorf("it took %d units, in force: %v", units, in)
	}
	if units, in := c.Took(&bucket.Limit{Name: "later"}); units != 0 || in {
		t.Errorf("it took %d units of a limit that was not in force: %v", units, in)
	}
}

func TestTexts(t *testing.T) {
	for millionths, want := range map[int64]string{0: "0.00", 1: "0.000001", 400_000: "0.40", 1_230_000: "1.23", 1_234_500: "1.2345", 70_000_000: "70.00"} {
		if got := Money(millionths); got != want {
			t.Errorf("%d millionths are written %q, want %q", millionths, got, want)
		}
	}
	for text, want := range map[string]string{"short": "short", "exactly8": "exactly8", "longer than that": "longer t", "sieben\u00fc\u00fc": "sieben\u00fc", "sieben\u00fc": "sieben\u00fc", "seven77\u00fc": "seven77"} {
		if got := Clip(text, 8); got != want {
			t.Errorf("%q is clipped to %q, want %q", text, got, want)
		}
	}
}
