package webhook

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestEndsArePosted checks that every end is posted once and signed. Its id derives from the job's origin, and its
// fields are those of results and letters elsewhere. A body that is not UTF-8 is in base64, and a long one is cut.
// Messages that are no ends are left out.
func TestEndsArePosted(t *testing.T) {
	r := newEndsRig(t)
	r.result("pay", "before", nil)
	r.start()
	binary, long := []byte{0xff, 0xfe, 0}, strings.Repeat("ä", mostBody)
	r.result("pay", "text", []byte("it is <done>"))
	r.result("pay", "binary", binary)
	r.result("pay", "long", []byte(long))
	r.result("sms", "other", nil)
	r.put(&nats.Msg{Subject: ledger.ResultSubject("pay", "k"), Data: []byte("of other software")})
	imported := (&deadletter.Letter{API: "pay", Key: "k", JobID: "imported", Reason: deadletter.Rejected, At: time.Now()}).Message()
	imported.Header[ingest.HeaderMsgID], imported.Header[deadletter.HeaderImported] = []string{"import.1"}, []string{"2026-01-02T15:04:05Z letter.x"}
	r.put(imported)
	r.letter("pay", "dead")
	r.result("pay", "last", nil)
	await.Until(t, "the last posts", func() bool { return len(r.took("pay")) == 5 && len(r.took("sms")) == 1 })
	took := r.took("pay")
	for _, job := range []string{"before", "imported"} {
		if _, ok := took[job]; ok {
			t.Errorf("%s was posted", job)
		}
	}
	if p := took["text"]; p.id != "result_WEIR_pay_0_text_17" || p.Type != "job.done" || p.Timestamp.IsZero() || p.Data.Key != "k" || p.Data.Outcome != "done" ||
		p.Data.Body != "it is <done>" || p.Data.Status != 200 || p.Data.Attempts != 1 || p.Data.Calls != 2 || p.Data.Price != "0.10" || p.Data.Redrives != 3 ||
		p.Data.ContentType != "text/plain" || p.Data.FinishedAt != "2026-01-02T15:04:05Z" || p.Data.Cut || p.Data.Seq == 0 {
		t.Errorf("a done job is posted as %+v", p)
	}
	if p := took["binary"]; p.Data.Base64 != base64.StdEncoding.EncodeToString(binary) || p.Data.Body != "" {
		t.Errorf("a body that is no text is posted as %+v", p.Data)
	}
	if p := took["long"]; !p.Data.Cut || p.Data.Body != long[:mostBody] {
		t.Errorf("of a body of %d bytes %d are posted, cut %v", len(long), len(p.Data.Body), p.Data.Cut)
	}
	if p := took["dead"]; p.id != "letter_WEIR_pay_0_dead_17" || p.Type != "job.dead" || p.Data.Outcome != "rejected" || p.Data.Detail != "the api answered 400" ||
		p.Data.Billed != "no" || p.Data.Status != 400 || p.Data.Body != "" || p.Data.Answer == nil || p.Data.Answer.Body != "no such customer" || p.Data.FinishedAt == "" {
		t.Errorf("a dead job is posted as %+v", p)
	}
	for id, n := range r.tries() {
		if n != 1 {
			t.Errorf("%s was posted %d times", id, n)
		}
	}
}

// TestEndsGoOn checks that a sender continues after the position, and with the ends that its predecessor left under
// way. After an orderly stop nothing is posted again.
func TestEndsGoOn(t *testing.T) {
	r := newEndsRig(t)
	var seqs []uint64
	for i := range 5 {
		seqs = append(seqs, r.result("pay", fmt.Sprint(i), nil))
	}
	r.position("pay.done", entry{Seq: seqs[2], Open: []underWay{{seqs[1], time.Now()}}})
	stop := r.start()
	await.Until(t, "the rest", func() bool { return len(r.took("pay")) == 3 })
	stop()
	if took := slices.Sorted(maps.Keys(r.took("pay"))); !slices.Equal(took, []string{"1", "3", "4"}) {
		t.Errorf("posted are %v", took)
	}
	r.result("pay", "next", nil)
	r.start()
	await.Until(t, "the next", func() bool { _, ok := r.took("pay")["next"]; return ok })
	for id, n := range r.tries() {
		if n != 1 {
			t.Errorf("%s was posted %d times", id, n)
		}
	}
}

// TestEndsWithoutPlace checks that all stored ends are posted again if the position is damaged, or refers to messages
// that do not exist.
func TestEndsWithoutPlace(t *testing.T) {
	r := newEndsRig(t)
	r.result("pay", "1", nil)
	r.result("sms", "1", nil)
	r.position("sms.done", entry{Seq: 1000})
	if _, err := r.kv.Put(t.Context(), "callback.pay.done.position", nil); err != nil || !IsCallbackPosition("callback.pay.done.position") {
		t.Fatal(err)
	}
	r.start()
	await.Until(t, "both ends", func() bool { return len(r.took("pay")) == 1 && len(r.took("sms")) == 1 })
}

// TestEndsOfReceiverThatIsDown checks that few ends are read and tried while an api's receiver is down. The others are
// counted, and no other callback waits.
func TestEndsOfReceiverThatIsDown(t *testing.T) {
	r := newEndsRig(t)
	r.answers(func(p posted) int {
		if p.Data.API == "pay" {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	r.start()
	const ended = 3 * mostUnderWay
	for i := range ended {
		r.result("pay", fmt.Sprint(i), nil)
		r.result("sms", fmt.Sprint(i), nil)
	}
	await.Until(t, "the ends of the other api", func() bool { return len(r.took("sms")) == ended })
	await.Until(t, "a count of what waits", func() bool {
		lag, ok := r.senders.Lag("pay")
		return ok && lag.Behind == ended && lag.Why == "answered 500" && !lag.Failing.IsZero() && !lag.Oldest.IsZero()
	})
	tried := 0
	for id := range r.tries() {
		if strings.Contains(id, "_pay_") {
			tried++
		}
	}
	if tried == 0 || tried > mostUnderWay {
		t.Errorf("%d of %d were tried", tried, ended)
	}
	await.Until(t, "the metric to say it", func() bool { return total(t, r.registry, "weir_callback_behind", "pay") == ended })
	r.answers(func(posted) int { return http.StatusOK })
	await.Until(t, "the ends of the api", func() bool { return len(r.took("pay")) == ended })
	await.Until(t, "nothing to be behind", func() bool {
		lag, _ := r.senders.Lag("pay")
		return lag == Lag{IsKnown: true}
	})
}

// TestLetterPurgedMeanwhile checks that a letter that is redriven or purged before the receiver accepts it is not
// posted any more.
func TestLetterPurgedMeanwhile(t *testing.T) {
	r := newEndsRig(t)
	r.answers(func(posted) int { return http.StatusInternalServerError })
	r.start()
	seq := r.letter("pay", "purged")
	r.letter("pay", "kept")
	await.Until(t, "a try of both", func() bool { return len(r.tries()) == 2 })
	b, err := deadletter.OpenBrowser(t.Context(), r.js)
	if err == nil {
		err = b.Delete(t.Context(), seq)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.answers(func(posted) int { return http.StatusOK })
	await.Until(t, "the one that is kept", func() bool { _, ok := r.took("pay")["kept"]; return ok })
	await.Until(t, "the other to be given up", func() bool { return total(t, r.registry, "weir_callback_ends_total", "removed") == 1 })
	if _, ok := r.took("pay")["purged"]; ok {
		t.Error("a letter that was purged was posted")
	}
}

// TestEndBeforeTheLeaderHasIt checks that an end which a replica delivers before the stream's leader has it is waited
// for, and not given up as removed, although the server's clock is behind.
func TestEndBeforeTheLeaderHasIt(t *testing.T) {
	r := newEndsRig(t)
	s := r.newSenders(r.config, 1, slog.DiscardHandler)
	for kind, store := range map[endKind]func() uint64{
		done: func() uint64 { return r.result("pay", "late", nil) },
		dead: func() uint64 { return r.letter("pay", "late") },
	} {
		type fetched struct {
			end *keptEnd
			err error
		}
		p := &endParcel{ends: &ends{sending: &sending{sender: &sender{Senders: s}}, api: "pay", kind: kind}, seq: 1, got: time.Now()}
		p.stored = p.got.Add(-lagsFor - time.Hour) // by the clock of a server that is behind
		got, before := make(chan fetched, 1), r.js.Conn().Stats().OutMsgs
		go func() {
			end, err := p.fetch(t.Context())
			got <- fetched{end, err}
		}()
		await.Until(t, "an answer that there is no such message", func() bool {
			return len(got) > 0 || r.js.Conn().Stats().OutMsgs > before+6
		})
		store()
		if f := await.Receive(t, "the end", got); f.err != nil || f.end == nil || f.end.job != "late" {
			t.Errorf("%s: %+v, %v", kind, f.end, f.err)
		}
		p.seq = 2
		p.got = time.Now().Add(-lagsFor - time.Second) // as of a stream that was created anew
		if end, err := p.fetch(t.Context()); end != nil || err != nil {
			t.Errorf("%s, from long ago: %+v, %v", kind, end, err)
		}
	}
}

// TestEndsTooOld checks that an end is given up when its time is over, and that it blocks no later one.
func TestEndsTooOld(t *testing.T) {
	r := newEndsRig(t)
	pay, _ := r.config.API("pay")
	pay.Callback.For = time.Nanosecond
	r.start()
	seq := r.result("pay", "old", nil)
	await.Until(t, "it to be given up", func() bool { return total(t, r.registry, "weir_callback_ends_total", "dropped") == 1 })
	await.Until(t, "the position to say so", func() bool {
		p := r.noted("pay.done").posting(seq)
		return p.State == admin.PostingGivenUp && p.Why == "it is older than the callback's for"
	})
	if n := len(r.tries()); n != 0 {
		t.Errorf("%d were posted", n)
	}
}

// TestResultsRemovedUnposted checks that results that their stream removes while no sender runs are counted. A gap in
// the sequences from other feeds is no loss.
func TestResultsRemovedUnposted(t *testing.T) {
	r := newEndsRig(t)
	var seqs []uint64
	for i := range 5 {
		r.result("sms", fmt.Sprint(i), nil)
		seqs = append(seqs, r.result("pay", fmt.Sprint(i), nil))
	}
	r.position("pay.done", entry{Seq: 0, Unread: 5, Sure: 5, UpTo: seqs[4]})
	s, err := r.js.Stream(t.Context(), ledger.ResultsStream)
	if err == nil {
		err = s.Purge(t.Context(), jetstream.WithPurgeSequence(seqs[3]))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.result("pay", "later", nil)
	r.start()
	await.Until(t, "the rest", func() bool { return len(r.took("pay")) == 3 })
	if took := slices.Sorted(maps.Keys(r.took("pay"))); !slices.Equal(took, []string{"3", "4", "later"}) {
		t.Errorf("posted are %v", took)
	}
	if n := total(t, r.registry, "weir_callback_ends_total", "dropped"); n != 3 {
		t.Errorf("%v are counted as dropped", n)
	}
}

// TestBegin checks that a new callback begins at the ends of the streams, and that a known one keeps its position. The
// position of a callback that is not configured is deleted.
func TestBegin(t *testing.T) {
	r := newEndsRig(t)
	last := r.result("pay", "1", nil)
	r.position("pay.done", entry{Seq: 0})
	r.position("gone.done", entry{Seq: 7})
	for range 2 {
		if err := Begin(t.Context(), r.js, r.kv, r.config, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.newSenders(r.config, 1, slog.DiscardHandler).forgetCallbacks(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := positions(t.Context(), r.kv, "callback.", "*.*")
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(all)); !slices.Equal(names, []string{"pay.dead", "pay.done", "sms.dead", "sms.done"}) {
		t.Errorf("noted are %v", names)
	}
	for feed, want := range map[string]uint64{"pay.done": 0, "sms.done": last, "pay.dead": 0} {
		if e := r.noted(feed); e.Seq != want {
			t.Errorf("%s begins behind %d, want %d", feed, e.Seq, want)
		}
	}
}

// TestCutBody checks that a cut body has only whole characters, and that a complete body stays as it is.
func TestCutBody(t *testing.T) {
	t.Parallel()
	euros := strings.Repeat("€", mostBody/3+1) // the bound is within a character of three bytes
	for name, c := range map[string]struct {
		body string
		was  bool
		want int
		cut  bool
	}{
		"short":                      {"ä", false, 2, false},
		"cut when it was stored":     {"ä\xc3", true, 2, true},
		"cut between characters":     {"ä", true, 2, true},
		"longer than posts have":     {euros, false, mostBody / 3 * 3, true},
		"no text, and cut":           {"\xff\xfe\xff\xfe\xff", true, 5, true},
		"no text, and whole":         {"\xff", false, 1, false},
		"as long as posts may have":  {strings.Repeat("x", mostBody), false, mostBody, false},
		"cut, of a single character": {"\xe2\x82", true, 0, true},
	} {
		if body, cut := cutBody([]byte(c.body), c.was); len(body) != c.want || cut != c.cut {
			t.Errorf("%s: %d bytes, cut %v", name, len(body), cut)
		}
	}
}
