package deadview

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestTallyIsACount checks that a tally agrees with reading all letters, for every filter, whichever letters come and
// go. A question reads only the letters that came since the last one.
func TestTallyIsACount(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	js, b := store(t)
	s, err := js.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	tally, ctx := NewTally(), await.Context(t, "the counts")
	next := 0
	var half time.Time
	for round := range 12 {
		for range r.IntN(60) {
			l := randomLetter(r, next)
			l.Status = []int{0, 404, 503}[r.IntN(3)]
			if r.IntN(5) == 0 {
				l.API = ""
			}
			if _, err := js.PublishMsg(t.Context(), l.Message()); err != nil {
				t.Fatal(err)
			}
			next++
		}
		switch info, err := s.Info(t.Context()); {
		case err != nil:
			t.Fatal(err)
		case round == 5:
			half = time.Now()
		case round%3 == 1: // some in the middle
			for range 20 {
				if seq := info.State.FirstSeq + r.Uint64N(info.State.LastSeq+1-info.State.FirstSeq); s.DeleteMsg(t.Context(), seq) != nil {
					continue // deleted already
				}
			}
		case round == 6 || round == 9: // the oldest
			if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(info.State.FirstSeq+(info.State.LastSeq-info.State.FirstSeq)/4)); err != nil {
				t.Fatal(err)
			}
		case round == 10: // all
			if err := s.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []deadletter.Filter{
			{}, {API: "pay"}, {API: "_"}, {Reason: deadletter.Unknown}, {Status: deadletter.StatusRange{From: 400, To: 499}}, {Status: noAnswer}, {Since: half}, {Until: half}, {API: "other"},
		} {
			got, err := tally.Count(ctx, b, f)
			if err != nil {
				t.Fatal(err)
			}
			want, err := CountByCause(ctx, b, f, nil)
			if err != nil {
				t.Fatal(err)
			}
			told, _ := json.Marshal(got)
			if is, _ := json.Marshal(want); string(told) != string(is) {
				t.Fatalf("round %d, %+v: told %s, and there are %s", round, f, told, is)
			}
		}
		read := js.Conn().Stats().InBytes
		if _, err := tally.Count(ctx, b, deadletter.Filter{}); err != nil {
			t.Fatal(err)
		}
		if read = js.Conn().Stats().InBytes - read; len(tally.letters) > 50 && read > uint64(100*len(tally.letters)) {
			t.Errorf("round %d: nothing came since, and %d bytes were read of %d letters", round, read, len(tally.letters))
		}
	}
	tally.Close()
	if got, err := tally.Count(ctx, b, deadletter.Filter{}); err != nil || len(got) == 0 && next == 0 {
		t.Errorf("after everything was forgotten: %v, %v", got, err)
	}
}

// TestCausesAreBounded checks that letters with more causes than a tally remembers are all counted, and that none is
// remembered.
func TestCausesAreBounded(t *testing.T) {
	js, b := store(t)
	tally, ctx := NewTally(), await.Context(t, "the counts")
	defer tally.Close()
	for i := range mostCauses + 1 {
		l := &deadletter.Letter{API: fmt.Sprint("api-", i), Key: "k", JobID: fmt.Sprint("job-", i), Reason: deadletter.Invalid}
		if _, err := js.PublishMsgAsync(l.Message(), jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	await.Receive(t, "the letters to be stored", js.PublishAsyncComplete())
	counts, err := tally.Count(ctx, b, deadletter.Filter{})
	if err != nil || len(counts) != mostCauses+1 {
		t.Errorf("%d causes of %d: %v", len(counts), mostCauses+1, err)
	}
	if n := len(tally.causes); n > mostCauses {
		t.Errorf("%d causes are kept in mind", n)
	}
}
