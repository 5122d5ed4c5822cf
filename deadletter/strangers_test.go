package deadletter_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/deadletter"
	"weir/ingest"
	"weir/ingest/await"
)

// TestUnknownAPIsHaveRoomOfTheirOwn checks that half of the room stays for letters of configured apis, however many
// jobs for unknown apis come. Deleted letters make room again.
func TestUnknownAPIsHaveRoomOfTheirOwn(t *testing.T) {
	js := natstest.JetStream(t)
	const room = 4 << 20
	w, err := deadletter.Open(t.Context(), deadletter.Options{
		Conn: js.Conn(), JetStream: js, Replicas: 1, MaxAge: time.Hour, MaxBytes: room, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := await.Receive(t, "the writer's end", ended); err != nil {
			t.Error(err)
		}
	}()
	bury := func(api string, code ingest.Code, body int) error {
		done := make(chan error, 1)
		w.BuryRefused(ingest.Refused{
			API: api, Key: "k", JobID: "j", Body: []byte(strings.Repeat("x", body)), Refusal: &ingest.Refusal{Code: code, Description: "no"},
		}, func(_ uint64, err error) { done <- err })
		return await.Receive(t, "a letter", done)
	}
	used := func() uint64 {
		s, err := js.Stream(t.Context(), deadletter.Stream)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.Bytes
	}
	if err := bury("none", ingest.UnknownAPI, 300<<10); err != nil || used() > 1<<10 {
		t.Errorf("a body of 300 KiB for an unknown api: %v, and %d bytes are stored", err, used())
	}
	kept := 0
	for ; err == nil && kept < 100; kept++ {
		err = bury("none", ingest.UnknownAPI, 100<<10)
	}
	if !errors.Is(err, ingest.ErrTold) || used() > room/2 || used() < room/4 {
		t.Errorf("%d letters of unknown apis took %d bytes of %d: %v", kept, used(), room, err)
	}
	for range 10 {
		if err := bury("pay", ingest.Invalid, 100<<10); err != nil {
			t.Fatalf("there is no room for letters of an api that is there: %v", err)
		}
	}
	s, err := js.Stream(t.Context(), deadletter.Stream)
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx2, cancel2 := context.WithTimeout(t.Context(), await.Patience)
	defer cancel2()
	for bury("none", ingest.UnknownAPI, 100<<10) != nil {
		select {
		case <-ctx2.Done():
			t.Fatal("letters were purged, and unknown apis find no room")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
