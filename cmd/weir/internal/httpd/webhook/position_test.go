package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// removeAll removes all messages of a stream.
func (r *endsRig) removeAll(name string) {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), name)
	if err == nil {
		err = s.Purge(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// down makes the receiver fail until many more ends of pay wait than are under way or read ahead.
func (r *endsRig) down(store func(api, job string)) (waiting int) {
	r.t.Helper()
	r.answers(func(posted) int { return http.StatusInternalServerError })
	r.start()
	waiting = mostUnderWay + endsAhead + 50
	for i := range waiting {
		store("pay", fmt.Sprint(i))
	}
	await.Until(r.t, "a count of what waits", func() bool {
		lag, _ := r.senders.Lag("pay")
		return lag.Behind == uint64(waiting)
	})
	return waiting
}

// TestLettersPurgedUnread checks that letters that are purged unread do not count as waiting, even if no later letter
// shows that they have gone.
func TestLettersPurgedUnread(t *testing.T) {
	r := newEndsRig(t)
	r.down(func(api, job string) { r.letter(api, job) })
	r.removeAll(deadletter.Stream)
	await.Until(t, "nothing to be behind", func() bool {
		lag, _ := r.senders.Lag("pay")
		return lag == Lag{IsKnown: true}
	})
	if n := total(t, r.registry, "weir_callback_behind", "pay"); n != 0 {
		t.Errorf("the metric says %v", n)
	}
}

// TestResultsRemovedMeanwhile checks that each result which its stream removes while the receiver is down counts once,
// whether it was under way, read ahead, or unread. A result that was read shortly before may still be posted, and then
// counts as sent.
func TestResultsRemovedMeanwhile(t *testing.T) {
	r := newEndsRig(t)
	removed := r.down(func(api, job string) { r.result(api, job, nil) })
	r.removeAll(ledger.ResultsStream)
	r.answers(func(posted) int { return http.StatusOK })
	r.result("pay", "later", nil)
	await.Until(t, "the later one", func() bool { _, ok := r.took("pay")["later"]; return ok })
	arrived := func() int { return len(r.took("pay")) - 1 }
	await.Until(t, "the removed ones to be given up", func() bool {
		lag, _ := r.senders.Lag("pay")
		return lag.Behind == 0 && lag.GivenUp >= uint64(removed-arrived())
	})
	lag, _ := r.senders.Lag("pay")
	n, gone := total(t, r.registry, "weir_callback_ends_total", dropped), removed-arrived()
	if n != float64(gone) || lag.GivenUp != uint64(gone) || total(t, r.registry, "weir_callback_ends_total", sent) != float64(arrived()+1) {
		t.Errorf("%d were removed and %d of them arrived before, %v are counted and %d reported", removed, arrived(), n, lag.GivenUp)
	}
}

// TestOrderlyStopReadsAnswers checks that a post that is under way when weir stops is not posted again if its answer
// comes soon.
func TestOrderlyStopReadsAnswers(t *testing.T) {
	r := newEndsRig(t)
	reached := make(chan struct{})
	var once sync.Once
	r.answers(func(posted) int {
		once.Do(func() { close(reached) })
		select {
		case <-r.running.Done():
		case <-t.Context().Done():
		}
		return http.StatusOK
	})
	stop := r.start()
	r.result("pay", "first", nil)
	await.Receive(t, "the post", reached)
	stop()
	if e := r.noted("pay.done"); len(e.Open) != 0 {
		t.Errorf("%v are noted as under way", e.Open)
	}
	r.answers(func(posted) int { return http.StatusOK })
	r.result("pay", "second", nil)
	r.start()
	await.Until(t, "the second", func() bool { _, ok := r.took("pay")["second"]; return ok })
	for id, n := range r.tries() {
		if n != 1 {
			t.Errorf("%s was posted %d times", id, n)
		}
	}
}

// TestPositionOfLaterConfiguration checks that a replica with an earlier configuration, without the callback, keeps the
// callback's position. A replica with a later configuration without it deletes the position, and logs how many ends
// waited.
func TestPositionOfLaterConfiguration(t *testing.T) {
	r := newEndsRig(t)
	if err := Begin(t.Context(), r.js, r.kv, r.config, 2); err != nil {
		t.Fatal(err)
	}
	e := r.noted("pay.done")
	e.Unread, e.Open = 3, []underWay{{Seq: 1}}
	r.position("pay.done", e)
	for version := uint64(1); version <= 3; version++ {
		var log bytes.Buffer
		if err := r.newSenders(&config.Config{}, version, slog.NewTextHandler(&log, nil)).forgetCallbacks(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := r.kv.Get(t.Context(), "callback.pay.done.position")
		gone := errors.Is(err, jetstream.ErrKeyNotFound)
		if gone != (version > 2) || strings.Contains(log.String(), "api=pay end=done count=4") != gone {
			t.Errorf("version 2 has the callback, and a replica with version %d leaves %v and logs %q", version, err, log.String())
		}
	}
}

// TestBeginAgain checks that a configuration that has a callback again, or still has it, changes only the version in
// its position. A position that cannot be read stays as it is.
func TestBeginAgain(t *testing.T) {
	r := newEndsRig(t)
	r.position("pay.done", entry{Seq: 7, Unread: 2, Begun: 3})
	if _, err := r.kv.Put(t.Context(), "callback.pay.dead.position", nil); err != nil {
		t.Fatal(err)
	}
	for version := uint64(5); version >= 4; version-- { // a late replica changes nothing
		if err := Begin(t.Context(), r.js, r.kv, r.config, version); err != nil {
			t.Fatal(err)
		}
	}
	if e := r.noted("pay.done"); e.Seq != 7 || e.Unread != 2 || e.Begun != 5 {
		t.Errorf("noted is %+v", e)
	}
	if stored, err := r.kv.Get(t.Context(), "callback.pay.dead.position"); err != nil || len(stored.Value()) > 0 {
		t.Errorf("a damaged position is %q: %v", stored.Value(), err)
	}
}

// taken is a bucket in which another replica is always first.
type taken struct{ jetstream.KeyValue }

func (taken) Create(context.Context, string, []byte, ...jetstream.KVCreateOpt) (uint64, error) {
	return 0, jetstream.ErrKeyExists
}

// TestBeginThatIsAlwaysSecond checks that Begin does not report success without the position of each callback.
func TestBeginThatIsAlwaysSecond(t *testing.T) {
	r := newEndsRig(t)
	if err := Begin(t.Context(), r.js, taken{r.kv}, r.config, 1); !errors.Is(err, errBusy) {
		t.Errorf("without a position: %v", err)
	}
}

// TestForgetBesideAReplicaThatLags checks that the position of a removed callback is deleted although a replica that
// lags has none.
func TestForgetBesideAReplicaThatLags(t *testing.T) {
	r := newEndsRig(t)
	r.position("pay.done", entry{Seq: 7, Unread: 2})
	natstest.LagReads(t, r.js, "KV_control")
	s := r.newSenders(r.config, 1, slog.DiscardHandler).callback("pay.done")
	for _, want := range []uint64{2, 0} {
		if waited, err := s.forget(t.Context()); waited != want || err != nil {
			t.Errorf("%d ends waited, %v; want %d", waited, err, want)
		}
	}
}

// TestLagOfAPositionDeletedBetweenWatches checks that a position that was deleted while nothing watched is shown no more.
func TestLagOfAPositionDeletedBetweenWatches(t *testing.T) {
	r := newEndsRig(t)
	r.position("pay.done", entry{Unread: 2})
	l := &lags{noted: map[string]entry{"pay.done": {Unread: 1}, "sms.done": {Unread: 5}}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.watch(ctx, r.kv) }()
	await.Until(t, "the present positions alone", func() bool { _, known := l.of("sms.done"); return !known })
	cancel()
	if err := await.Receive(t, "the end of the watch", ended); err != nil {
		t.Error(err)
	}
	if e, _ := l.of("pay.done"); e.Unread != 2 {
		t.Errorf("noted are %+v", l.noted)
	}
}

// TestBeginWhilePosting checks that a new configuration does not disturb the sender, which keeps the stored version.
func TestBeginWhilePosting(t *testing.T) {
	r := newEndsRig(t)
	r.start()
	for i := range 4 {
		r.result("pay", fmt.Sprint(i), nil)
		await.Until(t, "the post", func() bool { return len(r.took("pay")) == i+1 })
		if err := Begin(t.Context(), r.js, r.kv, r.config, uint64(2+i)); err != nil {
			t.Fatal(err)
		}
	}
	last := r.result("pay", "last", nil)
	await.Until(t, "a note of the last one", func() bool { e := r.noted("pay.done"); return e.Seq == last && len(e.Open) == 0 })
	if e := r.noted("pay.done"); e.Begun != 5 {
		t.Errorf("noted is %+v", e)
	}
	for id, n := range r.tries() {
		if n != 1 {
			t.Errorf("%s was posted %d times", id, n)
		}
	}
}

// TestStaleNote checks that the server refuses the position of a sender that has lost its lease. A sender that has the
// lease continues although its position was deleted.
func TestStaleNote(t *testing.T) {
	r := newEndsRig(t)
	seq := r.result("pay", "1", nil)
	if err := Begin(t.Context(), r.js, r.kv, r.config, 1); err != nil {
		t.Fatal(err)
	}
	senders, leased := r.newSenders(r.config, 1, slog.DiscardHandler), true
	former := &sending{sender: senders.callback("pay.done"), valid: func() bool { return leased }}
	present := &sending{sender: former.sender, valid: func() bool { return true }}
	for _, s := range []*sending{former, present} {
		if _, err := s.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	present.taken = seq + 7
	if err := present.note(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The former sender was suspended between its look at the lease and its update.
	former.valid = func() bool { was := leased; leased = false; return was }
	former.taken = seq + 1
	if err := former.note(t.Context()); !errors.Is(err, errInDoubt) || r.noted("pay.done").Seq != seq+7 {
		t.Errorf("a sender without the lease notes %+v: %v", r.noted("pay.done"), err)
	}
	if err := r.kv.Delete(t.Context(), "callback.pay.done.position"); err != nil {
		t.Fatal(err)
	}
	present.taken = seq + 8
	if err := present.note(t.Context()); err != nil || r.noted("pay.done").Seq != seq+8 {
		t.Errorf("after a deletion noted is %+v: %v", r.noted("pay.done"), err)
	}
}

// TestRemovedCallbackIsForgotten checks that the position of a callback that is no longer configured is deleted, even
// if its sender could not post when the callback was removed.
func TestRemovedCallbackIsForgotten(t *testing.T) {
	r := newEndsRig(t)
	r.position("pay.done", entry{Seq: 7, Begun: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := r.newSenders(&config.Config{}, 2, slog.DiscardHandler).callback("pay.done")
	looks := 0
	await.Return(t, "the end of the sender", func() {
		s.sendOn(ctx, func() bool { looks++; return looks > 1 })
	})
	if _, err := r.kv.Get(t.Context(), "callback.pay.done.position"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("its position stays: %v", err)
	}
}

// TestLagWithoutPositions checks that a lag says so if it does not have the positions of both types of ends.
func TestLagWithoutPositions(t *testing.T) {
	r := newEndsRig(t)
	s := r.newSenders(r.config, 1, slog.DiscardHandler)
	for _, c := range []struct {
		noted map[string]entry
		want  Lag
	}{
		{nil, Lag{}},
		{map[string]entry{"pay.done": {Unread: 2}}, Lag{Behind: 2}},
		{map[string]entry{"pay.done": {Unread: 2}, "pay.dead": {}}, Lag{Behind: 2, IsKnown: true}},
	} {
		s.lags.noted = c.noted
		if lag, ok := s.Lag("pay"); !ok || lag != c.want {
			t.Errorf("with %+v: %+v, %t", c.noted, lag, ok)
		}
	}
}
