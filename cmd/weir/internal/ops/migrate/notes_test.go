package migrate

import (
	"testing"

	"weir/bucket/natstest"
)

// TestNotesAreAskedOfTheLeader checks that no note is read from a replica, which may lag: it may lack the note of a
// move that is under way, or that is done.
func TestNotesAreAskedOfTheLeader(t *testing.T) {
	js := natstest.JetStream(t)
	ctx, nc := t.Context(), js.Conn()
	if err := RefuseElsewhere(ctx, js); err != nil {
		t.Fatalf("without a move: %v", err)
	}
	if err := writeNote(ctx, js, 1, arrivingKey, note{ID: "1", From: "nats://old"}); err != nil {
		t.Fatal(err)
	}
	replicas, err := nc.SubscribeSync("$JS.API.DIRECT.GET.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := RefuseElsewhere(ctx, js); err == nil {
		t.Error("weir starts on the target of a move that is under way")
	}
	if err := writeNote(ctx, js, 1, arrivingKey, note{ID: "1", From: "nats://old", Done: true}); err != nil {
		t.Fatal(err)
	}
	if err := RefuseElsewhere(ctx, js); err != nil {
		t.Errorf("weir does not start on the target of a move that is done: %v", err)
	}
	if err := writeNote(ctx, js, 1, leavingKey, note{ID: "2", To: "nats://new"}); err != nil {
		t.Fatal(err)
	}
	if err := CheckStillHere(ctx, nc); err == nil {
		t.Error("weir goes on although its jobs are being moved away")
	}
	if err := dropNote(ctx, js, leavingKey); err != nil {
		t.Fatal(err)
	}
	if n, err := readNote(ctx, nc, leavingKey); n != nil || err != nil {
		t.Errorf("the note of a move that was taken back: %+v, %v", n, err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := replicas.Pending(); n > 0 || err != nil {
		t.Errorf("%d reads of a replica, %v", n, err)
	}
}
