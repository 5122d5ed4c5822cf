package config

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestRulesAreAskedLast holds that what only the limits themselves refuse is told one by one, at the api.
func TestRulesAreAskedLast(t *testing.T) {
	doc := &document{}
	checkRules(value{doc: doc, line: 7, path: "apis.sms"}, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 0, Per: time.Second, Burst: 1}},
		Jitter: -1,
	})
	if len(doc.problems) != 2 || doc.problems[0].Line != 7 || doc.problems[1].Path != "apis.sms" {
		t.Errorf("two broken rules are told as %v", doc.problems)
	}
	doc = &document{}
	checkRules(value{doc: doc, line: 1}, bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}},
	})
	if len(doc.problems) != 0 {
		t.Errorf("rules that can be kept are refused: %v", doc.problems)
	}
}
