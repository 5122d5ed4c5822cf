package weirtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"
)

// Blocks returns the files that hold the messages of the api pay's queue.
func (r *Rig) Blocks() []string { return r.blocksIn(r.Settings().DataDir) }

func (r *Rig) blocksIn(dir string) []string {
	r.T.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "WEIR_pay_*", "msgs", "*.blk"))
	if err != nil || len(found) == 0 {
		r.T.Fatal("no block of the queue is found: ", err)
	}
	return found
}

// Flip inverts eight bytes of a job's body in the store's files.
func (r *Rig) Flip(body string) { r.FlipIn(r.Settings().DataDir, body) }

func (r *Rig) FlipIn(dir, body string) {
	r.T.Helper()
	for _, file := range r.blocksIn(dir) {
		data, err := os.ReadFile(file)
		if err != nil {
			r.T.Fatal(err)
		}
		at := bytes.Index(data, []byte(body))
		if at < 0 {
			continue
		}
		for i := range 8 {
			data[at+i] ^= 0xff
		}
		WriteFile(r.T, file, string(data))
		return
	}
	r.T.Fatalf("%q is in no block", body)
}

// CheckDeadEvents waits until a key has want events about its letters. It fails if there are more, or if the last
// event's reason is not unknown. weir stores an event after the letter.
func (r *Rig) CheckDeadEvents(key string, want int) {
	r.T.Helper()
	stream, err := r.JS.Stream(r.T.Context(), "WEIR_EVENTS")
	if err != nil {
		r.T.Fatal(err)
	}
	n := uint64(0)
	r.Eventually("the events of the letters of "+key, func() bool {
		info, err := stream.Info(r.T.Context(), jetstream.WithSubjectFilter("weir.events.dead.pay."+key))
		if err != nil {
			r.T.Fatal(err)
		}
		n = info.State.Subjects["weir.events.dead.pay."+key]
		return n >= uint64(want)
	})
	if n != uint64(want) {
		r.T.Errorf("key %s has %d events, want %d", key, n, want)
	}
	msg, err := stream.GetLastMsgForSubject(r.T.Context(), "weir.events.dead.pay."+key)
	if err != nil {
		r.T.Fatal(err)
	}
	var event struct{ Data struct{ Reason string } }
	if err := json.Unmarshal(msg.Data, &event); err != nil || event.Data.Reason != "unknown" {
		r.T.Errorf("the event says %s", msg.Data)
	}
}
