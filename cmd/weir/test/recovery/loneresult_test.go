package recovery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// loneResult is a weir that was killed when the result of an answered call was stored: the ledger takes no record.
func loneResult(t *testing.T) *flightRig {
	t.Helper()
	r := newFlightRig(t)
	js := servers.JetStreamOf(t, r.NC)
	calls, err := js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := calls.CachedInfo().Config // a start adds what it lacks
	cfg.Subjects = []string{"nobody.writes.here"}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.Publish(t.Context(), "weir.jobs.pay.good", "job-good", []byte("job-good"))
	close(r.answer)
	await.Until(t, "the result", func() bool {
		s, err := js.Stream(t.Context(), ledger.ResultsStream)
		return err == nil && s.CachedInfo().State.Msgs == 1
	})
	r.Proc.Kill()
	return r
}

// TestResultWithoutItsRecord: weir is killed when a call's result is stored and its record is not. The job is done and
// is not called again. Its one record has the call's cost and its key's pace, even if weir is killed once more
// meanwhile.
func TestResultWithoutItsRecord(t *testing.T) {
	t.Parallel()
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprintf("flight recorder %v", recorded), func(t *testing.T) {
			t.Parallel()
			r := loneResult(t)
			if !recorded {
				files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(r.Env[3], "WEIR_STATE_DIR="), "flight-*"))
				if err != nil || len(files) != 1 {
					t.Fatalf("%v: %v", files, err)
				}
				if err := os.Remove(files[0]); err != nil {
					t.Fatal(err)
				}
			}
			r.Start()
			r.Proc.Kill()
			r.Start()
			r.AwaitEmpty()
			if got := r.Outcomes()["job-good"]; len(got) != 1 || got[0] != ledger.Done {
				t.Errorf("ended as %v", got)
			}
			if n := len(r.API.All()); n != 1 {
				t.Errorf("%d calls", n)
			}
			records := store.RecordsOf(t, servers.JetStreamOf(t, r.NC))
			if len(records) != 1 {
				t.Fatalf("%+v", records)
			}
			if c := records[0]; c.Outcome != ledger.Done || !c.Final || c.Status != 200 || c.Call != 1 || c.Attempt != 1 || c.Price != "0.40" || c.TAT == 0 {
				t.Errorf("%+v", c)
			}
			if got := program.Command(t, r.Env, "spend"); got.Code != 0 || !strings.Contains(got.Stdout, "0.40") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRecordWaitsForItsResult checks that weir stores the record of a call only after its result. The record proves
// that the result is stored, and that the job's producer was told.
func TestRecordWaitsForItsResult(t *testing.T) {
	t.Parallel()
	r := newFlightRig(t)
	ends, err := r.NC.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	js := servers.JetStreamOf(t, r.NC)
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
	r.Publish(t.Context(), "weir.jobs.pay.large", "untold", []byte("job"))
	await.Until(t, "both calls", func() bool { return len(r.API.All()) == 2 })
	close(r.answer)
	await.Until(t, "results that cannot be stored", func() bool {
		return r.ended() == "2" && strings.Contains(program.Command(t, r.Env, "status").Stdout, "outcomes cannot be stored")
	})
	calls, err := js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	if n := calls.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d records before their results", n)
	}
	cfg.Subjects = subjects
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := ends.NextMsg(await.Patience); err != nil {
		t.Error(err)
	}
	r.AwaitEmpty()
	for _, id := range []string{"told", "untold"} {
		if got := r.Outcomes()[id]; len(got) != 1 || got[0] != ledger.Done {
			t.Errorf("%s ended as %v", id, got)
		}
	}
	if records := store.RecordsOf(t, js); len(records) != 2 {
		t.Errorf("%d records", len(records))
	}
}
