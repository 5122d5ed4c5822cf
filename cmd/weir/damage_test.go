package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/embedded"
	"weir/cmd/weir/internal/worker"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// damagedRig is a weir in whose queues one job of every key waits, and which is stopped. Another job of each has ended.
func damagedRig(t *testing.T, keys ...string) *rig {
	t.Helper()
	r := readyRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/24h, capacity: 100}\n")
	t.Cleanup(r.stop)
	r.start()
	for _, key := range keys {
		r.send("pay", key, nil, "the first of "+key)
		r.send("pay", key, nil, "the body of "+key)
	}
	r.awaitCalls(len(keys))
	r.stop()
	return r
}

// blocks are the files with the messages of the queue.
func (r *rig) blocks() []string { return r.blocksIn(r.settings().DataDir) }

func (r *rig) blocksIn(dir string) []string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "WEIR_pay_*", "msgs", "*.blk"))
	if err != nil || len(found) == 0 {
		r.t.Fatal("no block of the queue is found: ", err)
	}
	return found
}

// flip turns over eight bytes of a job's body in the store.
func (r *rig) flip(body string) { r.flipIn(r.settings().DataDir, body) }

func (r *rig) flipIn(dir, body string) {
	r.t.Helper()
	for _, file := range r.blocksIn(dir) {
		data, err := os.ReadFile(file)
		if err != nil {
			r.t.Fatal(err)
		}
		at := bytes.Index(data, []byte(body))
		if at < 0 {
			continue
		}
		for i := range 8 {
			data[at+i] ^= 0xff
		}
		writeFile(r.t, file, string(data))
		return
	}
	r.t.Fatalf("%q is in no block", body)
}

// TestDamagedJobIsTold: a job whose message was damaged while weir was stopped is told in the log, in the metric, by an event and by a
// letter, once, and the others stay.
func TestDamagedJobIsTold(t *testing.T) {
	t.Parallel()
	r := damagedRig(t, "a", "b", "c")
	r.flip("the body of b")
	r.said = &book{}
	r.start()
	r.eventually("the letter", func() bool { return len(r.letters("pay", "b")) == 1 })
	letter := r.letters("pay", "b")[0]
	for header, want := range map[string]string{
		"Weir-Dead-Reason": "unknown", "Weir-Dead-Billed": "no", "Weir-Dead-Body": "left out", "Weir-Key": "b", "Weir-Dead-Attempts": "0",
	} {
		if got := letter.Header.Get(header); got != want {
			t.Errorf("the letter's %s is %q, want %q", header, got, want)
		}
	}
	if detail := letter.Header.Get("Weir-Dead-Detail"); !strings.Contains(detail, "WEIR_pay_") || !strings.Contains(detail, "damaged") {
		t.Errorf("the letter says %q", detail)
	}
	const line = `weir_jobs_finished_total{api="pay",outcome="lost"} 1`
	r.eventually("the metric", func() bool { return strings.Contains(r.get("/metrics"), line) })
	if said := r.said.String(); !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "an accepted job is lost") {
		t.Error("the log does not tell of it")
	}
	r.checkDeadEvents("b", 1)
	if n := r.messages("WEIR_DEAD"); n != 1 {
		t.Errorf("there are %d letters", n)
	}
	r.stop()
	r.said = &book{}
	r.start()
	r.eventually("the others in their queue", func() bool { return strings.Contains(r.get("/metrics"), `weir_queued_jobs{api="pay"} 2`) })
	r.eventually("the word that it was told", func() bool { return strings.Contains(r.said.String(), "was told before") })
	if n := r.messages("WEIR_DEAD"); n != 1 {
		t.Errorf("after another start there are %d letters", n)
	}
}

// TestStopWhileLossesCannotBeTold: a weir whose letters cannot be stored stops all the same, and the next one tells.
func TestStopWhileLossesCannotBeTold(t *testing.T) {
	t.Parallel()
	r := damagedRig(t, "a", "b", "c")
	r.start()
	stream, err := r.js.Stream(t.Context(), "WEIR_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.operators().Publish(t.Context(), "weir.dead.other.rejected.k", nil); err != nil {
		t.Fatal(err)
	}
	sealed := stream.CachedInfo().Config
	sealed.MaxMsgs = 1 // a start takes bounds back that it wants higher, and not this one
	if _, err := r.operators().UpdateStream(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.flip("the body of b")
	r.said = &book{}
	r.start()
	r.eventually("the attempt to tell", func() bool { return strings.Contains(r.said.String(), "cannot be looked up or told") })
	r.stop()
	r.start()
	sealed.MaxMsgs = -1
	if _, err := r.operators().UpdateStream(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	r.eventually("the letter", func() bool { return len(r.letters("pay", "b")) == 1 })
}

// TestDroppedMessagesAreTold: a server that builds its index anew throws away what stands behind a damaged message. Whose jobs those
// were nobody knows; that there were some is told.
func TestDroppedMessagesAreTold(t *testing.T) {
	t.Parallel()
	r := damagedRig(t, "a", "b", "c")
	r.flip("the body of b")
	for _, file := range r.blocks() {
		if err := os.Remove(filepath.Join(filepath.Dir(file), "index.db")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	r.said = &book{}
	r.start()
	r.eventually("the metric", func() bool {
		return strings.Contains(r.get("/metrics"), "weir_queue_damages_total{api=\"pay\"} 1")
	})
	if said := r.said.String(); !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "threw messages away") {
		t.Error("the log does not tell of it")
	}
}

// TestEndedJobsAreNotTold: what was deleted because it ended is not told as lost, wherever in the queue it stood.
func TestEndedJobsAreNotTold(t *testing.T) {
	t.Parallel()
	r := damagedRig(t, "a", "b", "c")
	r.start()
	for i := range 20 {
		r.send("pay", fmt.Sprint("k", i), nil, "")
		if i%5 == 0 {
			r.send("pay", "a", nil, "")
		}
	}
	r.awaitCalls(23)
	r.stop()
	r.start()
	r.eventually("the jobs in their queue", func() bool { return strings.Contains(r.get("/metrics"), `weir_queued_jobs{api="pay"} 7`) })
	for _, line := range []string{`weir_jobs_finished_total{api="pay",outcome="lost"} 0`, `weir_queue_damages_total{api="pay"} 0`} {
		if !strings.Contains(r.get("/metrics"), line) {
			t.Errorf("the metrics have no %s", line)
		}
	}
	if n := r.messages("WEIR_DEAD"); n != 0 {
		t.Errorf("there are %d letters", n)
	}
}

// checkDeadEvents counts the events of letters of one key.
func (r *rig) checkDeadEvents(key string, want int) {
	r.t.Helper()
	stream, err := r.js.Stream(r.t.Context(), "WEIR_EVENTS")
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := stream.Info(r.t.Context(), jetstream.WithSubjectFilter("weir.events.dead.pay."+key))
	if err != nil {
		r.t.Fatal(err)
	}
	if n := info.State.Subjects["weir.events.dead.pay."+key]; n != uint64(want) {
		r.t.Errorf("key %s has %d events, want %d", key, n, want)
	}
	msg, err := stream.GetLastMsgForSubject(r.t.Context(), "weir.events.dead.pay."+key)
	if err != nil {
		r.t.Fatal(err)
	}
	var event struct{ Data struct{ Reason string } }
	if err := json.Unmarshal(msg.Data, &event); err != nil || event.Data.Reason != "unknown" {
		r.t.Errorf("the event says %s", msg.Data)
	}
}

// TestMessageGoneWhileItRuns: a job whose message the store loses, or somebody deletes, while weir runs becomes a letter that says which, with
// its event and its count; the others are called.
func TestMessageGoneWhileItRuns(t *testing.T) {
	t.Parallel()
	const jobs, large = 36, 1 << 20 // more than is kept in memory: the last are loaded when they are called
	addr, dir := freePort(t), t.TempDir()
	start := func() *embedded.Server {
		t.Helper()
		server, err := embedded.Start(t.Context(), embedded.Options{MaxStore: roomy, Listen: addr, Dir: dir, MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	server := start()
	t.Cleanup(func() { server.Shutdown() })
	gone := make(chan struct{}) // until then the first call is not answered, and the others wait for it
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}, Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		select {
		case <-gone:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // a call that is cut is an error to it
	r := &rig{t: t, api: api, dir: t.TempDir()}
	file := filepath.Join(r.dir, "weir.yaml")
	writeFile(t, file, fmt.Sprintf("apis:\n  pay:\n    url: %s/k\n    timeout: 2m\n    max_body: 1MiB\n    bucket: {rate: 100/s, capacity: 100, in_flight: 1}\n", api.URL()))
	s := externalSettings(t, server.ClientURL(), file, "first")
	s.Partitions = 1
	begin := func() {
		t.Helper()
		var err error
		if r.worker, err = worker.Start(await.Context(t, "a worker to start"), s, testLog(t)); err != nil {
			t.Fatal(err)
		}
		if r.nc, err = nats.Connect("nats://"+addr, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if r.js, err = jetstream.New(r.nc); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	t.Cleanup(r.stop)
	for i := range jobs {
		body := fmt.Sprintf("the body of %d:", i)
		r.send("pay", "k", nil, body+strings.Repeat(".", large-len(body)))
	}
	stream, err := r.js.Stream(t.Context(), "WEIR_pay_0")
	if err != nil {
		t.Fatal(err)
	}
	last, err := stream.GetLastMsgForSubject(t.Context(), "weir.q.pay.0.j.k")
	if err != nil {
		t.Fatal(err)
	}
	server.Shutdown()
	r.flipIn(dir, fmt.Sprintf("the body of %d:", jobs-1))
	server = start()
	r.eventually("weir to be ready again", func() bool { return r.worker.Ready(t.Context()) == nil })
	if err := stream.DeleteMsg(t.Context(), last.Sequence-1); err != nil {
		t.Fatal(err)
	}
	close(gone)
	r.awaitCalls(jobs - 2)
	r.eventually("the letters", func() bool { return len(r.letters("pay", "k")) == 2 })
	for _, letter := range r.letters("pay", "k") {
		h, want := letter.Header, fmt.Sprintf("deleted: somebody deleted message %d of WEIR_pay_0", last.Sequence-1)
		if detail := h.Get("Weir-Dead-Detail"); strings.HasPrefix(detail, "lost: ") {
			want = "lost: the store of its queue is damaged: " // a busy machine may have taken the partition over, which names it otherwise
		}
		if h.Get("Weir-Dead-Reason") != "unknown" || h.Get("Weir-Dead-Billed") != "no" || !strings.HasPrefix(h.Get("Weir-Dead-Detail"), want) {
			t.Errorf("a letter says %v, and not %q", h, want)
		}
	}
	r.checkDeadEvents("k", 2)
	for _, outcome := range []string{"lost", "deleted"} {
		line := fmt.Sprintf("weir_jobs_finished_total{api=\"pay\",outcome=%q} 1", outcome)
		r.eventually("the metric", func() bool { return strings.Contains(r.get("/metrics"), line) })
	}
	r.stop()
	begin()
	r.send("pay", "k", nil, "after")
	r.awaitCalls(jobs - 1)
	if n := r.messages("WEIR_DEAD"); n != 2 {
		t.Errorf("after another start there are %d letters", n)
	}
}
