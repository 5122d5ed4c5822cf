package deadletter

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestEventsAreSentences checks that each type of event has a sentence, and none shows its fields.
func TestEventsAreSentences(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	told := map[EventType]bool{}
	for want, e := range map[string]Event{
		"refused, bucket full: 500 of 500 (letter 55); refused 10 times so far": {
			Type: ThrottledEvent, Data: ThrottledData{Job: "j", Reason: "overflow", Detail: "bucket full: 500 of 500", DeadLetterSeq: 55, Refusals: 10},
		},
		"rejected, the api answered 400 (letter 56)": {
			Type: DeadEvent, Data: DeadData{Job: "j", Reason: "rejected", Detail: "the api answered 400", Attempts: 1, Status: 400, DeadLetterSeq: 56},
		},
		"held until 2026-01-02T15:04:05Z: the api answered 503": {Type: HeldEvent, Data: HoldData{Until: &until, Why: "the api answered 503"}},
		"called again: the pause is over":                       {Type: ResumedEvent, Data: HoldData{Why: "the pause is over"}},
		"80 % of the budget day is used until 2026-01-02T15:04:05Z: 8.00 of 10.00": {Type: BudgetEvent, Data: map[string]any{
			"limit": "day", "percent": 80, "counted": "8.00", "budget": "10.00", "until": until,
		}},
		"the budget day has no room for a usual call until 2026-01-02T15:04:05Z: 199.90 of 200.00 is used": {Type: BudgetEvent, Data: map[string]any{
			"limit": "day", "percent": 100, "counted": "199.90", "budget": "200.00", "until": until,
		}},
		"ann put version 7 in force, from weir.yaml: 1 change": {Type: ConfigEvent, Data: map[string]any{
			"who": "ann", "from": "weir.yaml", "old_version": 6, "new_version": 7, "changes": 1,
		}},
		"ann redrove 16 letters (api=pay reason=overflow); 2 overflowed again; 1 was refused again; " +
			"3 were only deleted, because the jobs had gone on; redrive nightly": {Type: RedrivenEvent, Data: OperationData{
			Who: "ann", Selection: "api=pay reason=overflow", Letters: 16, Overflowed: 2, Refused: 1, Settled: 3, Task: "nightly",
		}},
		"ann redrove 1 letter (all letters)":       {Type: RedrivenEvent, Data: OperationData{Who: "ann", Letters: 1}},
		"ann deleted 3 letters (7 8 9)":            {Type: PurgedEvent, Data: OperationData{Who: "ann", Selection: "7 8 9", Letters: 3}},
		"ann looked at the job's body (letter 56)": {Type: RevealedEvent, Data: RevealData{Who: "ann", Job: "j", DeadLetterSeq: 56}},
		"ann exported letters (api=pay)":           {Type: RevealedEvent, Data: RevealData{Who: "ann", Selection: "api=pay"}},
		"replica a is not ready: a stream is gone": {Type: UnhealthyEvent, Data: map[string]any{"instance": "a", "why": "a stream is gone"}},
		"replica a found a stream changed: WEIR_CALLS: it was purged": {Type: UnhealthyEvent, Data: map[string]any{
			"instance": "a", "why": "WEIR_CALLS: it was purged", "stream": "WEIR_CALLS",
		}},
		"replica a is ready again": {Type: HealthyEvent, Data: map[string]any{"instance": "a", "why": ""}},
		"records of calls are missing: 3 at the end": {Type: LedgerEvent, Data: map[string]any{
			"kind": "end", "records": 3, "why": "3 at the end",
		}},
		"the clock was set back by 1m": {Type: ClockEvent, Data: map[string]any{"moved_ms": -60000, "why": "the clock was set back by 1m"}},
		"the vendor counts 5 more of limit day than weir until 2026-01-02T15:04:05Z": {
			Type: ExcessEvent, Data: map[string]any{"limit": "day", "units": 5, "until": until},
		},
		"the vendor counts no more of limit day than weir any more": {Type: ExcessEvent, Data: map[string]any{"limit": "day", "units": 0}},
	} {
		raw, err := json.Marshal(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		kept := &KeptEvent{Type: e.Type}
		if err := json.Unmarshal(raw, &kept.Data); err != nil {
			t.Fatal(err)
		}
		if got := kept.Text(); got != want {
			t.Errorf("%s says %q, want %q", e.Type, got, want)
		}
		told[e.Type] = true
	}
	for _, kind := range EventTypes() {
		if !told[kind] {
			t.Errorf("%s has no sentence in this test", kind)
		}
	}
	if later := (&KeptEvent{Type: "later", Data: map[string]any{"n": 1.0, "a": "x"}}).Text(); !strings.Contains(later, "a=x n=1") {
		t.Errorf("a type that is not known says %q", later)
	}
}
