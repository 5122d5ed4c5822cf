package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
)

// TestRulesAreAskedLast checks that problems which only the limits themselves find are reported one by one, at the api.
func TestRulesAreAskedLast(t *testing.T) {
	doc := &field.Document{}
	checkRules(field.Value{Doc: doc, Line: 7, Path: "apis.sms"}, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 0, Per: time.Second, Burst: 1}},
		Jitter: -1,
	})
	if len(doc.Problems) != 2 || doc.Problems[0].Line != 7 || doc.Problems[1].Path != "apis.sms" {
		t.Errorf("two broken rules are told as %v", doc.Problems)
	}
	doc = &field.Document{}
	checkRules(field.Value{Doc: doc, Line: 1}, bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}},
	})
	if len(doc.Problems) != 0 {
		t.Errorf("rules that can be kept are refused: %v", doc.Problems)
	}
}

// TestNotesOfHold checks that there is one note on the effect of a 429 for each api whose keys share a limit, unless
// the file states the effect.
func TestNotesOfHold(t *testing.T) {
	const api = "apis:\n  sms:\n    url: https://a\n    bucket: {rate: 1/s, capacity: 1}\n"
	for more, want := range map[string]int{
		"": 0, "    limits: [{name: all, rate: 20/s}, {name: day, quota: 900/day}]\n": 1,
		"    limits: [{name: all, rate: 20/s}]\n    retry: {attempts: 3}\n": 1,
		"    limits: [{name: all, rate: 20/s}]\n    retry: {hold: api}\n":   0,
		"    limits: [{name: all, rate: 20/s}]\n    retry: {hold: key}\n":   0,
	} {
		c, err := Parse([]byte(api+more), Options{})
		if err != nil {
			t.Fatal(err)
		}
		notes := c.Notes()
		if len(notes) != want || len(c.Warnings) > 0 {
			t.Errorf("%q has %v, %v", more, notes, c.Warnings)
		}
		for _, n := range notes {
			if !strings.Contains(n.Fix, "hold: api") || !strings.Contains(n.Fix, "hold: key") || n.Line == 0 {
				t.Errorf("%q has %v", more, n)
			}
		}
	}
	const acme = "    account: acme\naccounts:\n  acme: {limits: [{name: all, rate: 20/s}]}\n"
	c, err := Parse([]byte(api+acme), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if notes := c.Notes(); len(notes) != 1 || !strings.Contains(notes[0].Fix, "hold: account") {
		t.Errorf("an api with an account has %v", notes)
	}
}

// TestNotesOfDays checks the note on quotas for a rate that spreads many calls over a day: for the bucket, a key and a
// limit. There is no note for a rate of one call, or of a shorter period.
func TestNotesOfDays(t *testing.T) {
	for text, want := range map[string]string{
		"bucket: {rate: 20000/day, capacity: 1}":                                                               "bucket.rate",
		"bucket: {rate: 1/s, capacity: 1}\n    keys: {vip: {rate: 2000/24h}}":                                  "keys.vip.rate",
		"bucket: {rate: 1/h, capacity: 1}\n    retry: {hold: key}\n    limits: [{name: all, rate: 20000/day}]": "limits[0].rate",
		"bucket: {rate: 1/day, capacity: 1}":                                                                   "",
		"bucket: {rate: 300/3h, capacity: 1}":                                                                  "",
	} {
		c, err := Parse(fmt.Appendf(nil, "apis:\n  sms:\n    url: https://a\n    %s\n", text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		switch notes := c.Notes(); {
		case want == "" && len(notes) > 0, want != "" && len(notes) != 1:
			t.Errorf("%q has %v", text, notes)
		case want != "" && (notes[0].Path != "apis.sms."+want || !strings.Contains(notes[0].Fix, "quota: 20") || notes[0].Line < 4):
			t.Errorf("%q has %v", text, notes)
		}
	}
}

// TestFixOfJitter checks that the advice about a rate that jitter fills names a burst only if there is one to lower.
func TestFixOfJitter(t *testing.T) {
	for burst, names := range map[string]bool{"": false, ", burst: 2": true} {
		c, err := Parse(fmt.Appendf(nil, "apis:\n  sms:\n    url: https://a\n    jitter: 5s\n    bucket: {rate: 2/s, capacity: 1%s}\n", burst), Options{})
		if err != nil || len(c.Warnings) != 1 {
			t.Fatal(err, c)
		}
		if w := c.Warnings[0]; strings.Contains(w.Fix, "lower burst") != names || !strings.Contains(w.Fix, "jitter") {
			t.Errorf("with %q it advises %q", burst, w.Fix)
		}
	}
}

// TestAdviceOfPeriods checks the advice for limits that probably mean something else: a quota for many calls a day, and
// a known period for one that does not exist.
func TestAdviceOfPeriods(t *testing.T) {
	const api = "apis:\n  sms:\n    url: https://a\n    bucket: {rate: 1/s, capacity: 1}\n    limits: [{name: all, %s}]\n"
	for limit, want := range map[string]string{
		"rate: 20000/day": "quota: 20000/day", "rate: 1/2s": "lower bucket.rate", "rate: 20000/daily": "day, week and durations such as 3h or 30d; a quota has month too",
		"quota: 20000/daily": "month", "quota: 20000/monthly": "write 20000/month",
	} {
		c, err := Parse(fmt.Appendf(nil, api, limit), Options{})
		said := fmt.Sprint(err)
		if err == nil {
			said = fmt.Sprint(c.Warnings)
		}
		if !strings.Contains(said, want) {
			t.Errorf("%s: %s", limit, said)
		}
	}
}
