package recovery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// flightRig is a weir beside a server that can be made to store nothing, and an api that answers when the test tells it
// to.
type flightRig struct {
	*weirtest.KillRig
	server *exec.Cmd
	addr   string // of the server
	store  string
	http   string
	answer chan struct{} // closed: the api answers
}

// answers are what the api does with the jobs of each key.
var answers = map[string]fakeapi.Behaviour{
	"good":  {Answer: fakeapi.AnswerText, Text: "the answer to good"},
	"large": {Answer: fakeapi.AnswerFill, Size: 50_000},
	"bad":   {Status: http.StatusBadRequest, Answer: fakeapi.AnswerText, Text: "no such thing"},
	"push":  {Status: http.StatusTooManyRequests, RetryAfter: "1"},
}

func newFlightRig(t *testing.T, env ...string) *flightRig {
	t.Helper()
	return flightRigOf(t, "", env...)
}

// flightRigOf is newFlightRig with further lines in its api's configuration.
func flightRigOf(t *testing.T, more string, env ...string) *flightRig {
	t.Helper()
	dir, addr, http := t.TempDir(), servers.FreePort(t), servers.FreePort(t)
	r := &flightRig{KillRig: &weirtest.KillRig{T: t, Acks: map[string]bool{}}, http: http, answer: make(chan struct{})}
	var err error
	r.API, err = fakeapi.Start(fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}, Script: func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
		if q.KeyCall > 1 {
			return fakeapi.Behaviour{}
		}
		if q.Key == "hang" {
			return fakeapi.Behaviour{Delay: time.Minute}
		}
		select {
		case <-r.answer:
		case <-ctx.Done():
		}
		return answers[q.Key]
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.API.Close() }) // the calls cut by kills are errors to it
	r.addr, r.store = addr, filepath.Join(dir, "nats")
	r.startServer()
	t.Cleanup(func() {
		_ = r.server.Process.Kill()                                 // it runs, or nothing does
		_ = await.Result(t, "the end of the server", r.server.Wait) // it was killed
	})
	if r.NC, err = nats.Connect("nats://"+addr, nats.Timeout(await.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.NC.Close)
	await.Until(t, "the server", r.NC.IsConnected)
	file := filepath.Join(dir, "weir.yaml")
	weirtest.WriteFile(t, file, fmt.Sprintf("apis:\n  pay:\n    url: %s/v1\n    price: 0.40\n    timeout: 1m\n    bucket: {rate: 50/s, capacity: 100, in_flight: 4}\n%s", r.API.URL(), more))
	r.Env = append([]string{
		"WEIR_CONFIG=" + file, "WEIR_NATS_URL=nats://" + addr, "WEIR_REPLICAS=1", "WEIR_STATE_DIR=" + filepath.Join(dir, "state"),
		"WEIR_HTTP_LISTEN=" + http, "WEIR_PARTITIONS=4", "WEIR_SHUTDOWN_TIMEOUT=10s",
	}, env...)
	r.Start()
	t.Cleanup(func() { r.Proc.Kill() })
	return r
}

// ended is how many calls weir says have ended.
func (r *flightRig) ended() string {
	response, err := http.Get("http://" + r.http + "/metrics")
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }() // it was read
	text, _ := io.ReadAll(response.Body)         // what was read is looked at
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, `weir_call_duration_seconds_count{api="pay"} `); ok {
			return strings.TrimSpace(n)
		}
	}
	return ""
}

// killAnswered lets a call of each key except hang be answered while nothing can be stored, and then kills weir.
func (r *flightRig) killAnswered() {
	r.T.Helper()
	keys := []string{"good", "large", "bad", "push", "hang"}
	for _, key := range keys {
		r.Publish(r.T.Context(), "weir.jobs.pay."+key, "job-"+key, []byte("job-"+key))
	}
	await.Until(r.T, "all calls", func() bool { return len(r.API.All()) == len(keys) })
	r.killServer()
	close(r.answer)
	await.Until(r.T, "the ends of all calls but one", func() bool { return r.ended() == "4" })
	r.Proc.Kill()
	r.startServer()
}

func (r *flightRig) startServer() {
	r.T.Helper()
	r.server = exec.Command(os.Args[0], "nats-server", "--listen", r.addr, "--dir", r.store)
	r.server.Env = append(program.Environ(), "WEIR_TEST_AS_WEIR=1")
	if err := r.server.Start(); err != nil {
		r.T.Fatal(err)
	}
	if r.NC != nil {
		await.Until(r.T, "the server", func() bool {
			_, err := r.NC.Request("$JS.API.INFO", nil, time.Second)
			return err == nil
		})
	}
}

// killServer has nothing of what weir sends from now on arrive: a server that only stands still reads it later.
func (r *flightRig) killServer() {
	r.T.Helper()
	if err := r.server.Process.Kill(); err != nil {
		r.T.Fatal(err)
	}
	_ = await.Result(r.T, "the end of the server", r.server.Wait) // it was killed
}

// TestWhatWasAnsweredIsSettledAfterAKill: of the calls that were under way when weir was killed, those that had been
// answered end as they would have, whatever their answer. Only the unanswered one is unknown. A kill in the middle of
// that changes nothing.
func TestWhatWasAnsweredIsSettledAfterAKill(t *testing.T) {
	t.Parallel()
	r := newFlightRig(t)
	r.killAnswered()
	// Killed again as soon as something of it is settled: what follows must not be done twice. What was pushed back is not called in
	// between: a kill in the middle of that call would rightly leave it unknown.
	pauses, err := servers.JetStreamOf(t, r.NC).KeyValue(t.Context(), connect.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pauses.Put(t.Context(), admin.PauseEntry("pay", "push"), []byte(`{"by": "test"}`)); err != nil {
		t.Fatal(err)
	}
	r.Start()
	r.Proc.Kill()
	if err := pauses.Delete(t.Context(), admin.PauseEntry("pay", "push")); err != nil {
		t.Fatal(err)
	}
	r.Start()
	r.AwaitEmpty()
	want := map[string]string{"job-good": "done", "job-large": "done", "job-push": "done", "job-bad": "rejected", "job-hang": "unknown"}
	got := r.Outcomes()
	for id, end := range want {
		if len(got[id]) != 1 || got[id][0] != end {
			t.Errorf("%s ended as %v, want %s", id, got[id], end)
		}
	}
	calls := map[string]int{}
	for _, a := range r.API.All() {
		calls[a.Key]++
	}
	for _, key := range []string{"good", "large", "bad", "hang"} {
		if calls[key] != 1 {
			t.Errorf("%s was called %d times", key, calls[key])
		}
	}
	if calls["push"] != 2 {
		t.Errorf("what was pushed back was called %d times", calls["push"])
	}
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	for key, body := range map[string]string{"good": "the answer to good", "large": strings.Repeat("x", 50_000)} {
		m := lastOf(t, js, ledger.ResultsStream, ledger.ResultSubject("pay", key))
		if string(m.Data) != body || m.Header.Get("Content-Type") != "text/plain" || m.Header.Get(ledger.HeaderStatus) != "200" ||
			m.Header.Get(ledger.HeaderCalls) != "1" || m.Header.Get(ledger.HeaderPrice) != "0.40" || m.Header.Get(ledger.HeaderBody) != "" {
			t.Errorf("the result of %s: %v, %d bytes", key, m.Header, len(m.Data))
		}
	}
	records := map[string][]ledger.Record{}
	for _, c := range store.RecordsOf(t, js) {
		records[c.Key] = append(records[c.Key], c)
	}
	for key, of := range map[string][]ledger.Record{"good": {{Outcome: "done", Status: 200, Final: true, Attempt: 1}}, "push": {
		{Outcome: ledger.PushedBack, Status: 429}, {Outcome: "done", Status: 200, Final: true, Attempt: 1},
	}, "bad": {{Outcome: "rejected", Status: 400, Final: true, Attempt: 1}}, "hang": {{Outcome: "unknown", Final: true, Attempt: 1}}} {
		if len(records[key]) != len(of) {
			t.Errorf("%s has %d records: %+v", key, len(records[key]), records[key])
			continue
		}
		for i, c := range records[key] {
			if w := of[i]; c.Outcome != w.Outcome || c.Status != w.Status || c.Final != w.Final || c.Attempt != w.Attempt || c.Call != i+1 || !c.Sent || c.Price != "0.40" || c.TAT == 0 {
				t.Errorf("%s: %+v", key, c)
			}
		}
	}
	if wait := records["push"][1].Started.Sub(records["push"][0].Ended); wait < time.Second {
		t.Errorf("it was called again %v after the api asked for a second", wait)
	}
	letter := lastOf(t, js, deadletter.Stream, (&deadletter.Letter{API: "pay", Key: "bad", Reason: deadletter.Rejected}).Subject())
	if letter.Header.Get(deadletter.HeaderReason) != "rejected" || letter.Header.Get(deadletter.HeaderBilled) != "no" {
		t.Errorf("%v", letter.Header)
	}
}

// TestWithoutARecorderAnAnswerIsUnknown: without a flight recorder, or if it was lost with the machine, every call
// whose outcome was not stored is unknown, and no call is made again.
func TestWithoutARecorderAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	r := newFlightRig(t)
	r.killAnswered()
	files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(r.Env[3], "WEIR_STATE_DIR="), "flight-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v: %v", files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	r.Start()
	r.AwaitEmpty()
	for id, end := range r.Outcomes() {
		if len(end) != 1 || end[0] != "unknown" {
			t.Errorf("%s ended as %v", id, end)
		}
	}
	if n := len(r.API.All()); n != 5 {
		t.Errorf("%d calls", n)
	}
}

// lastOf is the last message of a subject.
func lastOf(t *testing.T, js jetstream.JetStream, name, subject string) *jetstream.RawStreamMsg {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return m
}
