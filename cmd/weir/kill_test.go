package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/dispatcher/ledger"
	"weir/ingest/await"
)

// TestMain lets this test binary be weir, so that a test can kill one, and a script run one.
// asWeir has this binary be weir where a program of weir's starts itself: such a child gets no variable that begins with WEIR_.
const asWeir = "TEST_AS_WEIR"

func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_AS_WEIR") == "1" || os.Getenv(asWeir) == "1" {
		os.Exit(run(context.Background(), os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){"weir": main})
}

// process is a weir in a process of its own.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

func startProcess(t testing.TB, env ...string) (*process, error) {
	t.Helper()
	return startProgram(t, os.Args[0], env...)
}

// startProgram starts a binary of weir, and returns when it is ready.
func startProgram(t testing.TB, program string, env ...string) (*process, error) {
	t.Helper()
	return startCommand(t, exec.Command(program, "serve"), env...)
}

func startCommand(t testing.TB, cmd *exec.Cmd, env ...string) (*process, error) {
	t.Helper()
	cmd.Env = append(append(os.Environ(), "WEIR_TEST_AS_WEIR=1"), env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	ready := make(chan struct{})
	var log strings.Builder
	go func() {
		lines := bufio.NewScanner(stderr)
		up := false
		for lines.Scan() {
			if !up && strings.Contains(lines.Text(), "msg=ready") {
				up = true
				close(ready)
			}
			if !up {
				log.WriteString(lines.Text() + "\n")
			}
		}
		_ = cmd.Wait() // killed, mostly
		close(p.exited)
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.exited:
		return nil, fmt.Errorf("weir ended before it was ready:\n%s", log.String())
	case <-time.After(patience):
		p.kill()
		return nil, errors.New("weir was not ready in a minute")
	}
}

func (p *process) kill() {
	if p == nil {
		return // it was not ready in time
	}
	_ = p.cmd.Process.Kill() // it may have ended
	select {
	case <-p.exited:
	case <-time.After(patience):
		panic("a weir that was killed has not ended") // nothing that a test does would help
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	addr, err := machine.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

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

// TestKilledUnderLoad kills the worker, server and all, twenty times under load.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct{ name, yaml string }{
		{"idempotent", "idempotency: {header: Idempotency-Key}"},
		{"not idempotent", "timeout: 10s"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			r := restartUnderLoad(t, kind.yaml, 10, (*process).kill)
			r.judge(kind.yaml)
		})
	}
}

// TestOrderlyStopLeavesNothingUnknown: SIGTERM lets running calls end and takes back what was about to start, so that
// a deployment parks no job, not even on an api that is not idempotent.
func TestOrderlyStopLeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	r := restartUnderLoad(t, "timeout: 10s", 5, func(p *process) {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		await.Receive(t, "the end of a weir that is told to stop", p.exited)
	})
	r.judge("timeout: 10s")
	for id, out := range r.outcomes() {
		if out[0] != "done" {
			t.Errorf("%s ended as %v", id, out)
		}
	}
}

// restartUnderLoad ends a worker and starts it again, several times, while eight producers publish for a key each.
func restartUnderLoad(t *testing.T, line string, times int, end func(*process)) *killRig {
	t.Helper()
	r := newKillRig(t, fakeapi.Options{
		KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1},
		Latency: fakeapi.Latency{Shape: fakeapi.Uniform, Min: time.Millisecond, Mean: 10 * time.Millisecond, Seed: 1},
	}, "apis:\n  pay:\n    url: %s/v1\n    price: 0.40\n    "+line+"\n    jitter: 20ms\n    bucket: {rate: 50/s, capacity: 5000, in_flight: 4}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of all restarts together
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	var producers sync.WaitGroup
	for p := range 8 {
		producers.Go(func() {
			// Each producer keeps to one key and waits for every receipt, so that the order it wants is known.
			for n := p; publishing.Err() == nil; n += 8 {
				r.publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", p), fmt.Sprintf("job-%d", n), fmt.Appendf(nil, `{"n":%d}`, n))
			}
		})
	}
	for range times {
		if !stream.Sleep(ctx, 300*time.Millisecond) {
			t.Fatal("out of time")
		}
		end(r.proc)
		r.start()
	}
	stop()
	await.Return(t, "the producers' last receipts", producers.Wait)
	r.awaitEmpty()
	return r
}

// checkDepartures holds the starts that weir wrote down against the rate and the order: what the network and a busy
// machine did to the arrivals is not in them.
func (r *killRig) checkDepartures() {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	calls := map[string][]ledger.Record{}
	for _, c := range recordsOf(r.t, js) {
		if !c.Planned.IsZero() {
			calls[c.Key] = append(calls[c.Key], c)
		}
	}
	rate := bucket.Rate{Count: killRate, Per: time.Second, Burst: 1}
	for key, of := range calls {
		starts := make([]bucket.Arrival, len(of))
		last := uint64(0)
		for i, c := range of {
			starts[i] = bucket.Arrival{At: c.Started.UnixNano(), End: c.Ended.UnixNano()}
			if c.Call == 1 && c.Seq < last {
				r.t.Errorf("key %s: job %d was first called after job %d", key, c.Seq, last)
			}
			last = max(last, c.Seq)
		}
		r.referee().hold("starts of "+key, starts, bucket.Limit{Name: "rate", Rate: &rate}, killJitter)
	}
}

// The kill tests run many processes on a small machine: a call may arrive later than on a quiet one.
const (
	killRate   = 50
	killJitter = 20 * time.Millisecond
)

func (r *killRig) referee() referee { return referee{r.t, r.heldUp} }

// judge holds what the api saw against what was promised.
func (r *killRig) judge(line string) {
	t := r.t
	arrivals, ended := r.api.All(), r.outcomes()
	calls := map[string]int{}
	for _, a := range arrivals {
		calls[string(a.Body)]++
	}
	idempotent := strings.HasPrefix(line, "idempotency")
	r.checkDepartures()
	lost, both, unknown, twice := 0, 0, 0, 0
	for id := range r.acks {
		switch out := ended[id]; {
		case len(out) == 0:
			lost++
		case len(out) > 1:
			both++
			t.Logf("%s ended as %v", id, out)
		case out[0] == "unknown":
			unknown++
		case out[0] != "done":
			t.Errorf("%s ended as %s", id, out[0])
		}
	}
	for _, n := range calls {
		if n > 1 {
			twice++
		}
	}
	t.Logf("accepted %d, calls %d, lost %d, two ends %d, unknown %d, called twice %d", len(r.acks), len(arrivals), lost, both, unknown, twice)
	if lost > 0 || both > 0 {
		t.Errorf("%d accepted jobs are lost, %d ended twice", lost, both)
	}
	if !idempotent && twice > 0 {
		t.Errorf("%d jobs were called twice on an api that is not idempotent", twice)
	}
	for _, key := range fakeapi.KeysOf(arrivals) {
		of := fakeapi.OfKey(arrivals, key)
		second := max(time.Second-r.referee().eps(), 1) // of stamps that are all off by more nothing is known
		if fullest := fakeapi.FullestByCount(of, second); fullest.Count > killRate {
			t.Errorf("key %s: %d calls arrived within %s, %d may", key, fullest.Count, second, killRate)
		}
	}
	if idempotent && unknown > 0 {
		t.Errorf("%d letters unknown on an idempotent api", unknown)
	}
}
