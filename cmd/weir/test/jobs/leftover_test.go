package jobs

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"
)

// logLines is a log that is read while it is written.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// TestLeftoversAreTold: jobs of an api that was removed are reported when it is removed, at the next start, and on
// request. Other messages in the queue are not counted.
func TestLeftoversAreTold(t *testing.T) {
	t.Parallel()
	const pay = "\napis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 9}\n"
	const both = pay + "  sms_2:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/h, capacity: 9}\n    retry: {attempts: 9, min: 1h, max: 2h}\n"
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, both)
	r.Producer().SubmitMany("pay", "k", 2)
	r.Producer().SubmitMany("sms_2", "k", 3) // nothing listens at the api's address: the first gets a retry mark
	r.AwaitCalls(1)
	keys := func(api string) program.Ended {
		return program.Command(t, []string{"WEIR_NATS_URL=" + r.Worker.NATSURL()}, "keys", api)
	}
	if did := keys("sms_2"); did.Code != 0 {
		t.Errorf("while it is configured: exit code %d, %s", did.Code, did.Stderr)
	}
	r.Follow(pay)
	if did := keys("sms_2"); !strings.Contains(did.Stderr, "api sms_2 is not configured, and 3 jobs wait in its queues") {
		t.Errorf("exit code %d, %s", did.Code, did.Stderr)
	}
	if did := keys("sms"); !strings.Contains(did.Stderr, "the configured ones are pay") {
		t.Errorf("of an api that never was: exit code %d, %s", did.Code, did.Stderr)
	}
	r.Stop()

	log := &logLines{}
	start := func() {
		w, err := worker.Start(await.Context(t, "a worker to start"), r.Settings(), slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		r.Worker = w
	}
	start()
	if !log.has("jobs wait of an api that is not configured: configure it again to have them called\" api=sms_2 jobs=3") {
		t.Errorf("the start does not tell:\n%s", log.text.String())
	}
	if log.has("api=pay jobs=") {
		t.Error("jobs of an api that is configured are told of")
	}
	r.Worker.Stop()
	if err := await.Result(t, "the end of the worker", r.Worker.Wait); err != nil {
		t.Error(err)
	}
	r.Worker = nil
}
