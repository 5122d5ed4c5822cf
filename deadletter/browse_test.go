package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/deadletter"
	"weir/ingest/await"
)

// openStream starts a nats-server and creates the stream of letters.
func openStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js := natstest.JetStream(t)
	if _, err := deadletter.OpenBrowser(t.Context(), js); !errors.Is(err, deadletter.ErrNoStream) {
		t.Fatalf("before there were letters: %v", err)
	}
	_, err := deadletter.Open(t.Context(), deadletter.Options{
		Conn: js.Conn(), JetStream: js, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 30, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// bury publishes letters n to n+count-1. One in rare is of api few, the others are of api most.
func bury(t *testing.T, js jetstream.JetStream, n, count, rare int) {
	t.Helper()
	for i := n; i < n+count; i++ {
		l := &deadletter.Letter{
			API: "most", Key: fmt.Sprintf("k.%d", i%7), JobID: fmt.Sprintf("job-%d", i), Reason: deadletter.Rejected,
			Detail: "the api answered", Body: []byte("body"), Status: 400 + i%5, Billed: deadletter.NotBilled, At: time.Now(),
			Attempts: 1, Header: nats.Header{"X-Own": {"1"}},
		}
		if i%rare == 0 {
			l.API, l.Reason = "few", deadletter.Overflow
		}
		if _, err := js.PublishMsgAsync(l.Message()); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			await.Receive(t, "letters to be stored", js.PublishAsyncComplete())
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(90 * time.Second):
		t.Fatal("the letters were not stored")
	}
}

// TestNewestAgreesWithReadingAll checks that reading backwards gives the same letters as reading all and choosing, for
// many filters.
func TestNewestAgreesWithReadingAll(t *testing.T) {
	t.Parallel()
	js := openStream(t)
	b, err := deadletter.OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	bury(t, js, 0, 3000, 301)
	half := time.Now()
	bury(t, js, 3000, 3000, 1501)
	stream, err := js.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 { // redriven and purged letters leave holes
		if err := stream.DeleteMsg(t.Context(), 1+rnd.Uint64N(6000)); err != nil && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
			t.Fatal(err)
		}
	}
	var all []deadletter.Kept
	err = b.Each(t.Context(), deadletter.Filter{}, func(k deadletter.Kept, read, of uint64) error {
		if read != uint64(len(all)+1) || of < 5800 || of > 6000 {
			t.Fatalf("read %d of %d", read, of)
		}
		all = append(all, k)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		filter deadletter.Filter
		want   func(deadletter.Kept) bool
	}{
		"all":              {deadletter.Filter{}, func(deadletter.Kept) bool { return true }},
		"sparse":           {deadletter.Filter{API: "few"}, func(k deadletter.Kept) bool { return k.API == "few" }},
		"none":             {deadletter.Filter{API: "nobody"}, func(deadletter.Kept) bool { return false }},
		"reason":           {deadletter.Filter{Reason: deadletter.Overflow}, func(k deadletter.Kept) bool { return k.Reason == deadletter.Overflow }},
		"key":              {deadletter.Filter{API: "most", Key: "k.3"}, func(k deadletter.Kept) bool { return k.API == "most" && k.Key == "k.3" }},
		"status":           {deadletter.Filter{Status: deadletter.StatusRange{From: 402, To: 402}}, func(k deadletter.Kept) bool { return k.Status == 402 }},
		"since":            {deadletter.Filter{Since: half}, func(k deadletter.Kept) bool { return !k.Stored.Before(half) }},
		"until":            {deadletter.Filter{Until: half}, func(k deadletter.Kept) bool { return k.Stored.Before(half) }},
		"between":          {deadletter.Filter{Since: half, Until: half}, func(deadletter.Kept) bool { return false }},
		"future":           {deadletter.Filter{Since: half.Add(time.Hour)}, func(deadletter.Kept) bool { return false }},
		"before":           {deadletter.Filter{Before: 2000}, func(k deadletter.Kept) bool { return k.Seq < 2000 }},
		"before and until": {deadletter.Filter{Before: 2000, Until: half}, func(k deadletter.Kept) bool { return k.Seq < 2000 }},
		"until and before": {deadletter.Filter{Before: 5000, Until: half}, func(k deadletter.Kept) bool { return k.Stored.Before(half) }},
		"until and sparse": {deadletter.Filter{Until: half, API: "few"}, func(k deadletter.Kept) bool {
			return k.Stored.Before(half) && k.API == "few"
		}},
	} {
		var want []uint64
		for _, k := range all {
			if c.want(k) {
				want = append(want, k.Seq)
			}
		}
		slices.Reverse(want)
		for _, limit := range []int{0, 1, 100, 5000} {
			var got []uint64
			err := b.Newest(t.Context(), c.filter, limit, func(k deadletter.Kept) error {
				got = append(got, k.Seq)
				return nil
			})
			some := want
			if limit > 0 {
				some = want[:min(limit, len(want))]
			}
			if err != nil || !slices.Equal(got, some) {
				t.Errorf("%s, limit %d: %d letters, want %d, error %v", name, limit, len(got), len(some), err)
			}
		}
	}
	consumers := 0
	for range stream.ListConsumers(t.Context()).Info() {
		consumers++
	}
	if consumers > 0 {
		t.Errorf("%d consumers were left behind", consumers)
	}
}

// TestDeleteBesideAReplicaThatLags checks that a letter counts as deleted only if the stream's leader lacks it.
func TestDeleteBesideAReplicaThatLags(t *testing.T) {
	t.Parallel()
	js := openStream(t)
	b, err := deadletter.OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	bury(t, js, 1, 1, 1000)
	letters, err := js.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := letters.CachedInfo().Config
	cfg.DenyDelete = true
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	natstest.LagReads(t, js, deadletter.Stream)
	if err := b.Delete(t.Context(), 1); err == nil {
		t.Error("a letter that cannot be deleted counts as deleted")
	}
	if err := b.Delete(t.Context(), 2); err != nil {
		t.Errorf("a letter that is gone: %v", err)
	}
}

func TestGetAndFollow(t *testing.T) {
	js := openStream(t)
	b, err := deadletter.OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	bury(t, js, 1, 1, 1000)
	if _, err := b.Get(t.Context(), 2); !errors.Is(err, deadletter.ErrNoLetter) {
		t.Errorf("a letter that never was: %v", err)
	}
	k, err := b.Get(t.Context(), 1)
	if err != nil || k.API != "most" || k.Key != "k.1" || k.JobID != "job-1" || k.Status != 401 || string(k.Body) != "body" ||
		k.Reason != deadletter.Rejected || k.Billed != deadletter.NotBilled || k.Attempts != 1 || k.Header.Get("X-Own") != "1" {
		t.Errorf("letter 1 came back as %+v, %v", k, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	follow := func(f deadletter.Filter, from int, count int) {
		t.Helper()
		n := from
		ctx, done := context.WithCancel(ctx)
		defer done()
		err := b.Follow(ctx, f, func(k deadletter.Kept) error {
			if want := fmt.Sprintf("job-%d", n); k.JobID != want || k.Size != 4 || k.Body != nil {
				return fmt.Errorf("%+v, want %s", k, want)
			}
			if n++; n == from+count {
				done()
			}
			return nil
		})
		if err != nil || n != from+count {
			t.Errorf("followed to %d, want %d: %v", n, from+count, err)
		}
	}
	follow(deadletter.Filter{Since: time.Now().Add(-time.Hour)}, 1, 1)

	// Follow passes only letters that are stored from now on. Letters are buried until it passes the first.
	seen := make(chan string, 1000)
	go func() {
		defer close(seen)
		if err := b.Follow(ctx, deadletter.Filter{API: "most"}, func(k deadletter.Kept) error {
			seen <- k.JobID
			return nil
		}); err != nil {
			t.Error(err)
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n, limit := 2, time.Now().Add(await.Patience); ; n++ {
		if time.Now().After(limit) {
			t.Fatalf("not one of %d letters came to who follows them", n-2)
		}
		bury(t, js, n, 1, 1000)
		select {
		case job := <-seen:
			if job == "job-1" || job == "" {
				t.Errorf("%q came, which was there before", job)
			}
			cancel()
			for range seen { // until Follow has returned
			}
			return
		case <-tick.C:
		}
	}
}
