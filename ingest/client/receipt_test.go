package client

import (
	"encoding/json"
	"reflect"
	"strings"
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

// TestPlainAnswers checks that answers of the usual spelling are read as encoding/json reads them, that every other text
// is left to encoding/json, and that receipts without an escape have that spelling.
func TestPlainAnswers(t *testing.T) {
	same := func(t interface{ Fatalf(string, ...any) }, data []byte) (plain bool) {
		r, plain := plainReceipt(data)
		if plain {
			got, err := judged(r)
			if want, bad := decodeAnswer(data); !reflect.DeepEqual(got, want) || (err == nil) != (bad == nil) {
				t.Fatalf("%s is read as %+v, %v, and encoding/json reads %+v, %v", data, got, err, want, bad)
			}
		}
		if cut, ok := cutAnswers(data); ok {
			var want batchAnswer
			if err := json.Unmarshal(data, &want); err == nil && !reflect.DeepEqual(cut, want.Jobs) {
				t.Fatalf("%s is cut into %q, and encoding/json cuts it into %q", data, cut, want.Jobs)
			}
		}
		return plain
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "WEIR_a_0", "0199-a", "tenant.42", "a b", "a\"b", "ü", "{}", "a\\"})
		var all [][]byte
		for range rapid.IntRange(1, 4).Draw(t, "jobs") {
			r := Receipt{
				Stream: text.Draw(t, "stream"), Seq: rapid.Uint64Range(0, 1<<63-1).Draw(t, "seq"), Job: text.Draw(t, "job"), Key: text.Draw(t, "key"),
				Duplicate: rapid.Bool().Draw(t, "duplicate"), OverSoft: rapid.Bool().Draw(t, "over soft"), Position: rapid.IntRange(0, 1<<31).Draw(t, "position"),
			}
			if rapid.Bool().Draw(t, "eta") {
				r.ETA = time.Unix(0, rapid.Int64Range(0, 1<<61).Draw(t, "at"))
			}
			answer := r.Answer(time.Unix(0, 0))
			if plain, escaped := same(t, answer), strings.ContainsAny(r.Stream+r.Job+r.Key, "\"ü\\"); plain == escaped {
				t.Fatalf("%s is plain: %v", answer, plain)
			}
			other := []byte(string(answer))
			other[rapid.IntRange(0, len(other)-1).Draw(t, "where")] = rapid.SampledFrom([]byte(`"{}:,0a\\ -`)).Draw(t, "other")
			same(t, other)
			same(t, answer[:rapid.IntRange(0, len(answer)).Draw(t, "cut")])
			all = append(all, answer, nil)
		}
		batch := JoinAnswers(all, 1<<20)
		if cut, ok := cutAnswers(batch); !ok || len(cut) != len(all) {
			t.Fatalf("%s is cut into %q", batch, cut)
		}
		same(t, batch)
		batch[rapid.IntRange(0, len(batch)-1).Draw(t, "where in the batch")] = rapid.SampledFrom([]byte(`"{}:,0a\\ -`)).Draw(t, "other in the batch")
		same(t, batch)
	})
}
