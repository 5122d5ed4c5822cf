package weirtest

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
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// KillRig is a weir process that a test kills again and again while a producer publishes.
type KillRig struct {
	T      *testing.T
	API    *fakeapi.API
	Env    []string
	Addr   string
	Proc   *program.Process
	NC     *nats.Conn
	heldUp *machine.HeldUp

	Mu   sync.Mutex
	Acks map[string]bool // ids of jobs with a receipt
}

func NewKillRig(t *testing.T, o fakeapi.Options, yaml string, env ...string) *KillRig {
	t.Helper()
	api, err := fakeapi.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // the api counts calls that kills cut as errors
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, yaml, api.URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &KillRig{T: t, API: api, Addr: servers.FreePort(t), Acks: map[string]bool{}, heldUp: referee.MeasureHeldUp(t)}
	r.Env = []string{
		"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + filepath.Join(dir, "data"), "WEIR_NATS_LISTEN=" + r.Addr,
		"WEIR_HTTP_LISTEN=", "WEIR_PARTITIONS=4", "WEIR_SHUTDOWN_TIMEOUT=10s",
	}
	r.Env = append(r.Env, env...)
	r.Start()
	t.Cleanup(func() { r.Proc.Kill() })
	nc, err := nats.Connect("nats://"+r.Addr, nats.Timeout(await.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	r.NC = nc
	t.Cleanup(nc.Close)
	return r
}

// Start starts weir, and waits until NC is connected again, because NC sends nothing before.
func (r *KillRig) Start() {
	r.T.Helper()
	var err error
	if r.Proc, err = program.StartProcess(r.T, r.Env...); err != nil {
		r.T.Fatal(err)
	}
	if r.NC != nil {
		await.Until(r.T, "the producer's connection", r.NC.IsConnected)
	}
}

// receiptWait is how long a producer waits for an answer before it asks again. A kill may have prevented the answer.
const receiptWait = 5 * time.Second

// Publish submits a job and records its receipt. Without an answer it submits the job again with the same id, as a
// careful producer does.
func (r *KillRig) Publish(ctx context.Context, subject, id string, body []byte) {
	r.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: body, Header: nats.Header{
		"Nats-Msg-Id": {id}, "Weir-Path": {"/" + subject[strings.LastIndex(subject, ".")+1:]},
	}})
}

// PublishMsg is Publish for a whole message.
func (r *KillRig) PublishMsg(ctx context.Context, msg *nats.Msg) {
	for ctx.Err() == nil {
		reply, err := r.NC.RequestMsg(msg, receiptWait)
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
			r.Mu.Lock()
			r.Acks[msg.Header.Get(nats.MsgIdHdr)] = true
			r.Mu.Unlock()
			return
		}
		if a.Error != nil && a.Error.Code != 503 {
			return // refused
		}
	}
}

// PublishAll submits jobs in batches and records their receipts. Until ctx ends, it submits the jobs that got no answer
// or could not be stored again, with the same ids. It returns how many of the jobs weir knew already.
func (r *KillRig) PublishAll(ctx context.Context, jobs []client.Submission) (known int) {
	c := client.New(r.NC, client.Options{AnswerWithin: receiptWait})
	for len(jobs) > 0 && ctx.Err() == nil {
		answers, err := c.SubmitMany(ctx, jobs)
		var open []client.Submission
		for i, a := range answers {
			var refusal *client.Refusal
			switch {
			case a.Err == nil:
				r.Mu.Lock()
				r.Acks[a.Receipt.Job] = true
				r.Mu.Unlock()
				if a.Receipt.Duplicate {
					known++
				}
			case errors.Is(a.Err, client.ErrNoAnswer), errors.As(a.Err, &refusal) && refusal.Code == client.Unavailable:
				open = append(open, jobs[i])
			}
		}
		jobs = append(open, jobs[len(answers):]...)
		if err != nil && !stream.Sleep(ctx, 10*time.Millisecond) {
			return known
		}
	}
	return known
}

// Outcomes returns the ends of all jobs, by id. An end is "done" or a letter's reason.
func (r *KillRig) Outcomes() map[string][]string {
	r.T.Helper()
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	ended := map[string][]string{}
	for stream, header := range map[string]string{"WEIR_RESULTS": "Weir-Outcome", "WEIR_DEAD": "Weir-Dead-Reason"} {
		s, err := js.Stream(r.T.Context(), stream)
		if err != nil {
			r.T.Fatal(err)
		}
		for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq && s.CachedInfo().State.Msgs > 0; seq++ {
			m, err := s.GetMsg(r.T.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // this letter only prevented a late result
			} else if err != nil {
				r.T.Fatal(err)
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

func (r *KillRig) Queued() int {
	r.T.Helper()
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	depths, err := queue.Depths(r.T.Context(), js, "pay")
	if err != nil {
		return -1
	}
	n := 0
	for _, d := range depths {
		n += int(d.Jobs)
	}
	return n
}

// AwaitEmpty waits until the api pay has no unfinished job.
func (r *KillRig) AwaitEmpty() {
	r.T.Helper()
	ctx := await.Context(r.T, "an empty queue")
	for r.Queued() != 0 {
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			r.T.Fatalf("%v: %d jobs wait, %d calls were made", context.Cause(ctx), r.Queued(), len(r.API.All()))
		}
	}
}

func (r *KillRig) Referee() referee.Referee {
	return referee.Referee{T: r.T, API: r.API, HeldUp: r.heldUp}
}

// Hand submits a job with a secret in its path, its query and its body. It returns the code of a refusal, or 0.
func (r *KillRig) Hand(key, id string, header nats.Header) (refused int) {
	r.T.Helper()
	msg := &nats.Msg{Subject: "weir.jobs.pay." + key, Data: []byte(`{"a":"swordfish"}`), Header: nats.Header{
		"Nats-Msg-Id": {id}, "Weir-Path": {"/swordfish/" + key}, "Weir-Query": {"q=swordfish"},
	}}
	for name, values := range header {
		msg.Header[name] = values
	}
	reply, err := r.NC.RequestMsg(msg, Patience)
	if err != nil {
		r.T.Fatal(err)
	}
	var a producer.Answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		r.T.Fatal(err)
	}
	if a.Error != nil {
		return a.Error.Code
	}
	return 0
}
