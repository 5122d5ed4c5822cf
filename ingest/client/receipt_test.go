package client

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAnswer checks that the hand-written JSON of a receipt is what encoding/json would write.
func TestAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string {
			return rapid.OneOf(rapid.StringMatching(`[ -~]{0,12}`), rapid.String(), rapid.Just("<\xff\u2028>")).Draw(t, name)
		}
		now := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "now"), 0)
		r := Receipt{
			Stream: text("stream"), Seq: rapid.Uint64().Draw(t, "seq"), Job: text("job"), Key: text("key"), Duplicate: rapid.Bool().Draw(t, "duplicate"),
			OverSoft: rapid.Bool().Draw(t, "over soft"), Position: rapid.Int().Draw(t, "position"),
		}
		want := receiptAnswer{Receipt: r}
		if rapid.Bool().Draw(t, "eta") {
			r.ETA = now.Add(time.Duration(rapid.Int64Range(-2e9, 2e9).Draw(t, "in")))
			ms := max(0, r.ETA.Sub(now).Milliseconds())
			want.ETA, want.ETAms = r.ETA.UTC().Format(etaLayout), &ms
		}
		if got := r.Answer(now); string(got) != string(mustJSON(want)) {
			t.Fatalf("written as\n%s\nand encoding/json has\n%s", got, mustJSON(want))
		}
	})
}
