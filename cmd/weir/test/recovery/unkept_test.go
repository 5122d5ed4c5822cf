package recovery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// halfKept is a weir that was killed when of an answered call only the message of one stream was stored: the other stream takes none.
func halfKept(t *testing.T, stored, not string) *flightRig {
	t.Helper()
	r := newFlightRig(t)
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	awaitView(t, js)
	for _, name := range []string{stored, not} {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if cfg := s.CachedInfo().Config; name == not { // a start adds what it lacks
			cfg.Subjects = []string{"nobody.writes.here"}
			if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Publish(t.Context(), "weir.jobs.pay.good", "job-good", []byte("job-good"))
	close(r.answer)
	await.Until(t, "one half", func() bool {
		s, err := js.Stream(t.Context(), stored)
		return err == nil && s.CachedInfo().State.Msgs == 1
	})
	r.Proc.Kill()
	return r
}

// checkOneEnd waits until the job has ended as it should, after one call, also where weir is killed once more meanwhile.
func (r *flightRig) checkOneEnd(want string, records ...string) jetstream.JetStream {
	r.T.Helper()
	r.Start()
	r.Proc.Kill()
	r.Start()
	r.AwaitEmpty()
	if got := r.Outcomes()["job-good"]; len(got) != 1 || got[0] != want {
		r.T.Errorf("ended as %v, want %s", got, want)
	}
	if n := len(r.API.All()); n != 1 {
		r.T.Errorf("%d calls", n)
	}
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	var got []string
	for _, c := range weirtest.RecordsOf(r.T, js) {
		got = append(got, c.Outcome)
	}
	if strings.Join(got, " ") != strings.Join(records, " ") {
		r.T.Errorf("the ledger has %v, want %v", got, records)
	}
	return js
}

// TestRecordWithoutItsResult: weir is killed when a call's record is stored and its result is not. The result is stored from the flight
// recorder; without one the job is a letter that says so, and nothing of it is called or billed a second time.
func TestRecordWithoutItsResult(t *testing.T) {
	t.Parallel()
	t.Run("with a recorder", func(t *testing.T) {
		t.Parallel()
		r := halfKept(t, ledger.CallsStream, ledger.ResultsStream)
		js := r.checkOneEnd("done", "done")
		if m := lastOf(t, js, ledger.ResultsStream, ledger.ResultSubject("pay", "good")); string(m.Data) != "the answer to good" ||
			m.Header.Get(ledger.HeaderAttempts) != "1" || m.Header.Get(ledger.HeaderCalls) != "1" || m.Header.Get(ledger.HeaderPrice) != "0.40" {
			t.Errorf("%q: %v", m.Data, m.Header)
		}
	})
	t.Run("without one", func(t *testing.T) {
		t.Parallel()
		r := halfKept(t, ledger.CallsStream, ledger.ResultsStream)
		files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(r.Env[3], "WEIR_STATE_DIR="), "flight-*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v: %v", files, err)
		}
		if err := os.Remove(files[0]); err != nil {
			t.Fatal(err)
		}
		js := r.checkOneEnd("unknown", "done", "unknown")
		letter := lastOf(t, js, deadletter.Stream, (&deadletter.Letter{API: "pay", Key: "good", Reason: deadletter.Unknown}).Subject())
		if h := letter.Header; h.Get(deadletter.HeaderBilled) != "yes" || h.Get(deadletter.HeaderStatus) != "200" ||
			!strings.Contains(h.Get(deadletter.HeaderDetail), "ended before its result was stored") {
			t.Errorf("%v", letter.Header)
		}
		if got := weirtest.Command(t, r.Env, "spend"); got.Code != 0 || !strings.Contains(got.Stdout, "0.40") || strings.Contains(got.Stdout, "0.80") {
			t.Errorf("%+v", got)
		}
		if got := weirtest.Command(t, r.Env, "job", "job-good"); got.Code != 0 || !strings.Contains(got.Stdout, "call 1: its result was not kept") ||
			!strings.Contains(got.Stdout, "dead letter 1") {
			t.Errorf("%+v", got)
		}
		if got := weirtest.Command(t, r.Env, "verify"); got.Code != 0 || !strings.Contains(got.Stdout, "1 call") {
			t.Errorf("%+v", got)
		}
	})
}

// TestResultWithoutItsRecord: weir is killed when a call's result is stored and its record is not.
func TestResultWithoutItsRecord(t *testing.T) {
	t.Parallel()
	r := halfKept(t, ledger.ResultsStream, ledger.CallsStream)
	r.checkOneEnd("done", "done")
}

// TestRecordWaitsForTheReply: the record of a call says that whoever waits for its result was told. So it is not stored while the result is
// not.
func TestRecordWaitsForTheReply(t *testing.T) {
	t.Parallel()
	r := newFlightRig(t)
	ends, err := r.NC.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	awaitView(t, js)
	s, err := js.Stream(t.Context(), ledger.ResultsStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	subjects := cfg.Subjects
	cfg.Subjects = []string{"nobody.writes.here"}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	msg := nats.NewMsg("weir.jobs.pay.good")
	msg.Data = []byte("job")
	msg.Header.Set("Nats-Msg-Id", "told")
	msg.Header.Set("Weir-Reply-To", ends.Subject)
	if _, err := r.NC.RequestMsg(msg, await.Patience); err != nil {
		t.Fatal(err)
	}
	close(r.answer)
	await.Until(t, "the end of the call", func() bool { return r.ended() == "1" })
	calls, err := js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	if n := calls.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d records before anybody was told", n)
	}
	cfg.Subjects = subjects
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := ends.NextMsg(await.Patience); err != nil {
		t.Error(err)
	}
	await.Until(t, "the record", func() bool {
		info, err := calls.Info(t.Context())
		return err == nil && info.State.Msgs == 1
	})
	if c := weirtest.RecordsOf(t, js); c[0].Beside || c[0].Outcome != ledger.Done {
		t.Errorf("%+v", c[0])
	}
}

// TestRecordOfGoneResults: where a result that was stored may have gone with its age by now, nobody calls again: the job is a letter, also
// on an api that takes idempotency keys.
func TestRecordOfGoneResults(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, fmt.Sprintf("results: {max_age: 1s}\n"+weirtest.OutcomeYAML, api.URL(), "127.0.0.1:1", "127.0.0.1:1"))
	r.Stop()
	r.Offline(func(o *weirtest.Offline) {
		for _, api := range []string{"safe", "once"} {
			o.Leave(api, api+"-gone", weirtest.Left{Intents: []int{1}, Record: weirtest.Done(weirtest.SafeKey)})
		}
	})
	r.Start()
	for _, api := range []string{"safe", "once"} {
		r.Eventually("an empty queue", func() bool { return r.Waiting(api) == 0 })
		r.CheckLeft(t, api, api+"-gone", weirtest.Unkept())
		if detail := r.Letters(api, api+"-gone")[0].Header.Get(deadletter.HeaderDetail); !strings.Contains(detail, "has gone with its age") {
			t.Error(detail)
		}
		if n := len(r.API.Arrivals(api + "-gone")); n != 0 {
			t.Errorf("%d calls", n)
		}
	}
}
