package jobstory

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/deadletter"
)

// TestEventsAreTold checks that an event about a job is shown as a sentence, and not as its fields.
func TestEventsAreTold(t *testing.T) {
	t.Parallel()
	for want, told := range map[string]struct {
		kind deadletter.EventType
		data any
	}{
		"event throttled: refused, bucket full: 500 of 500 (letter 55); refused 10 times so far": {
			deadletter.ThrottledEvent, deadletter.ThrottledData{Job: "j", Reason: "overflow", Detail: "bucket full: 500 of 500", DeadLetterSeq: 55, Refusals: 10},
		},
		"event dead: rejected, the api answered 400 (letter 56)": {
			deadletter.DeadEvent, deadletter.DeadData{Job: "j", Reason: "rejected", Detail: "the api answered 400", Attempts: 1, Status: 400, DeadLetterSeq: 56},
		},
		"event revealed: ann looked at the job's body (letter 56)": {
			deadletter.RevealedEvent, deadletter.RevealData{Who: "ann", Job: "j", DeadLetterSeq: 56},
		},
	} {
		raw, err := json.Marshal(told.data)
		if err != nil {
			t.Fatal(err)
		}
		e := &deadletter.KeptEvent{Type: told.kind}
		if err := json.Unmarshal(raw, &e.Data); err != nil {
			t.Fatal(err)
		}
		if got := toldText(e); got != want || strings.Contains(got, "=") {
			t.Errorf("%s is told as %q, want %q", told.kind, got, want)
		}
	}
}
