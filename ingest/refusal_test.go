package ingest

import (
	"strings"
	"testing"
	"time"

	"weir/ingest/await"
)

var answerNow = time.Date(2026, 1, 2, 15, 4, 4, 723e6, time.UTC)

// TestReceiptAnswer checks receipts byte for byte, because other people's programs read them.
func TestReceiptAnswer(t *testing.T) {
	plain := Receipt{Stream: "WEIR_credit-check_3", Seq: 17, Job: "0199", Key: "vip-1", Position: 4}
	for _, c := range []struct {
		name   string
		change func(*Receipt)
		want   string
	}{
		{
			"queued", func(r *Receipt) { r.ETA = answerNow.Add(400 * time.Millisecond) },
			`{"stream":"WEIR_credit-check_3","seq":17,"job":"0199","key":"vip-1","position":4,"eta":"2026-01-02T15:04:05.123Z","eta_ms":400}`,
		},
		{
			"at once", func(r *Receipt) { r.ETA, r.Position = answerNow, 1 },
			`{"stream":"WEIR_credit-check_3","seq":17,"job":"0199","key":"vip-1","position":1,"eta":"2026-01-02T15:04:04.723Z","eta_ms":0}`,
		},
		{
			"overdue", func(r *Receipt) { r.ETA = answerNow.Add(-time.Hour) },
			`{"stream":"WEIR_credit-check_3","seq":17,"job":"0199","key":"vip-1","position":4,"eta":"2026-01-02T14:04:04.723Z","eta_ms":0}`,
		},
		{"on the second, from elsewhere", func(r *Receipt) {
			r.ETA = time.Date(2026, 1, 2, 16, 4, 6, 0, time.FixedZone("", 3600))
		}, `{"stream":"WEIR_credit-check_3","seq":17,"job":"0199","key":"vip-1","position":4,"eta":"2026-01-02T15:04:06.000Z","eta_ms":1277}`},
		{
			"known and waiting", func(r *Receipt) { r.Duplicate, r.ETA = true, answerNow },
			`{"stream":"WEIR_credit-check_3","seq":17,"job":"0199","key":"vip-1","duplicate":true,"position":4,"eta":"2026-01-02T15:04:04.723Z","eta_ms":0}`,
		},
		{
			"known and finished", func(r *Receipt) { r.Duplicate, r.Position = true, 0 },
			`{"stream":"WEIR_credit-check_3","seq":17,"job":"0199","key":"vip-1","duplicate":true,"position":0}`,
		},
		{
			"a key that JSON escapes", func(r *Receipt) { r.Key = "a\"b\x00é" },
			`{"stream":"WEIR_credit-check_3","seq":17,"job":"0199","key":"a\"b\u0000é","position":4}`,
		},
	} {
		receipt := plain
		c.change(&receipt)
		if got := string(receipt.Answer(answerNow)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestRefusalAnswer checks refusals byte for byte. "error" has only the members that every NATS client knows.
func TestRefusalAnswer(t *testing.T) {
	for _, c := range []struct {
		refusal          Refusal
		stream, job, key string
		letter           uint64
		want             string
	}{
		{
			Refusal{Code: Throttled, Description: "bucket full: credit-check/vip-1 holds 500 of 500", Depth: 500, Capacity: 500, RetryAfter: 1200 * time.Millisecond},
			"WEIR_credit-check_3", "0199", "vip-1", 55,
			`{"error":{"code":429,"err_code":20429,"description":"bucket full: credit-check/vip-1 holds 500 of 500"},"stream":"WEIR_credit-check_3","seq":0,"job":"0199","key":"vip-1","retry_after_ms":1200,"dead_letter_seq":55}`,
		},
		{
			Refusal{Code: Invalid, Description: "no"},
			"WEIR_a_0", "0199", "k", 1,
			`{"error":{"code":400,"err_code":20400,"description":"no"},"stream":"WEIR_a_0","seq":0,"job":"0199","key":"k","dead_letter_seq":1}`,
		},
		{
			Refusal{Code: UnknownAPI, Description: "no"},
			"", "0199", "", 1,
			`{"error":{"code":404,"err_code":20404,"description":"no"},"stream":"","seq":0,"job":"0199","dead_letter_seq":1}`,
		},
		{
			Refusal{Code: TooLarge, Description: "no"},
			"WEIR_a_0", "0199", "k", 1,
			`{"error":{"code":413,"err_code":20413,"description":"no"},"stream":"WEIR_a_0","seq":0,"job":"0199","key":"k","dead_letter_seq":1}`,
		},
		{
			Refusal{Code: Unavailable, Description: "no"},
			"WEIR_a_0", "0199", "k", 0,
			`{"error":{"code":503,"err_code":20503,"description":"no"},"stream":"WEIR_a_0","seq":0,"job":"0199","key":"k"}`,
		},
	} {
		got := c.refusal.Answer(c.stream, c.job, c.key, c.letter)
		if string(got) != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if _, err := ParseAnswer(got); err == nil || err.Error() != c.refusal.Description {
			t.Errorf("weir's own client reads %s as %v", got, err)
		}
	}
}

// TestOpen checks that no job can enter after close, and that the channel of close is closed when the last job has
// left.
func TestOpen(t *testing.T) {
	var o unanswered
	for range 2 {
		if !o.enter() {
			t.Fatal("nobody may come in")
		}
	}
	o.leave()
	closed := o.close()
	select {
	case <-closed:
		t.Error("closed while one is in")
	default:
	}
	if o.enter() {
		t.Error("one came in after the close")
	}
	o.leave()
	await.Receive(t, "the end after the last has left", closed)
	await.Receive(t, "the end, asked for again", o.close())
	var empty unanswered
	await.Receive(t, "the end where nobody is in", empty.close())
}

func TestClip(t *testing.T) {
	if got := clip(strings.Repeat("x", 65)); got != strings.Repeat("x", 64)+"…" {
		t.Errorf("%q", got)
	}
}

// TestDescriptionsReadable checks that a refusal's answer has the description without escapes.
func TestDescriptionsReadable(t *testing.T) {
	answer := string(refuse(Invalid, "publish to weir.jobs.<api>.<key>").Answer("s", "j", "k", 1))
	if !strings.Contains(answer, "weir.jobs.<api>.<key>") || !strings.HasSuffix(answer, "}") {
		t.Errorf("%q", answer)
	}
}
