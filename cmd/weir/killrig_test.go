package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// killRig is a weir process that is killed again and again while a producer publishes.
type killRig struct {
	t      *testing.T
	api    *fakeapi.API
	env    []string
	addr   string
	proc   *process
	nc     *nats.Conn
	heldUp *machine.HeldUp

	mu   sync.Mutex
	acks map[string]bool // ids with a receipt
}

func newKillRig(t *testing.T, o fakeapi.Options, yaml string, env ...string) *killRig {
	t.Helper()
	api, err := fakeapi.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // calls cut by kills are errors to it
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, yaml, api.URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &killRig{t: t, api: api, addr: freePort(t), acks: map[string]bool{}, heldUp: measureHeldUp(t)}
	r.env = []string{
		"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + filepath.Join(dir, "data"), "WEIR_NATS_LISTEN=" + r.addr,
		"WEIR_HTTP_LISTEN=", "WEIR_PARTITIONS=4", "WEIR_SHUTDOWN_TIMEOUT=10s",
	}
	r.env = append(r.env, env...)
	r.start()
	t.Cleanup(func() { r.proc.kill() })
	nc, err := nats.Connect("nats://"+r.addr, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	r.nc = nc
	t.Cleanup(nc.Close)
	return r
}

func (r *killRig) start() {
	r.t.Helper()
	var err error
	if r.proc, err = startProcess(r.t, r.env...); err != nil {
		r.t.Fatal(err)
	}
}

// receiptWait is after how long a producer asks again: its worker may have been killed before it answered.
const receiptWait = 5 * time.Second

// publish submits a job and notes its receipt. A job without an answer is submitted again with the same id, as a
// producer that wants to be sure does.
func (r *killRig) publish(ctx context.Context, subject, id string, body []byte) {
	for ctx.Err() == nil {
		msg := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{
			"Nats-Msg-Id": {id}, "Weir-Path": {"/" + subject[strings.LastIndex(subject, ".")+1:]},
		}}
		reply, err := r.nc.RequestMsg(msg, receiptWait)
		if err != nil {
			if !stream.Sleep(ctx, 10*time.Millisecond) {
				return
			}
			continue
		}
		var a struct {
			Seq   uint64
			Error *struct{ Code int }
		}
		if json.Unmarshal(reply.Data, &a) == nil && a.Error == nil && a.Seq > 0 {
			r.mu.Lock()
			r.acks[id] = true
			r.mu.Unlock()
			return
		}
		if a.Error != nil && a.Error.Code != 503 {
			return // refused: not accepted
		}
	}
}

// outcomes reads how every job ended: by job id, "done" or a letter's reason.
func (r *killRig) outcomes() map[string][]string {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	ended := map[string][]string{}
	for stream, header := range map[string]string{"WEIR_RESULTS": "Weir-Outcome", "WEIR_DEAD": "Weir-Dead-Reason"} {
		s, err := js.Stream(r.t.Context(), stream)
		if err != nil {
			r.t.Fatal(err)
		}
		for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq && s.CachedInfo().State.Msgs > 0; seq++ {
			m, err := s.GetMsg(r.t.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // it kept a late result out
			} else if err != nil {
				r.t.Fatal(err)
			}
			if strings.HasPrefix(m.Subject, "weir.o.") {
				continue
			}
			id := m.Header.Get("Weir-Job-Id")
			ended[id] = append(ended[id], m.Header.Get(header))
		}
	}
	return ended
}

func (r *killRig) queued() int {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	depths, err := queue.Depths(r.t.Context(), js, "pay")
	if err != nil {
		return -1
	}
	n := 0
	for _, d := range depths {
		n += int(d.Jobs)
	}
	return n
}

// awaitEmpty waits until no job of the api pay waits.
func (r *killRig) awaitEmpty() {
	r.t.Helper()
	ctx := await.Context(r.t, "an empty queue")
	for r.queued() != 0 {
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			r.t.Fatalf("%v: %d jobs wait, %d calls were made", context.Cause(ctx), r.queued(), len(r.api.All()))
		}
	}
}

func (r *killRig) referee() referee { return referee{r.t, r.heldUp} }
