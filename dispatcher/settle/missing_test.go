package settle

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/ingest"
	"weir/ingest/await"
)

// mending is a log handler that calls mend when something could not be stored.
type mending struct {
	slog.Handler
	mend func()
}

func (m mending) WithAttrs([]slog.Attr) slog.Handler { return m }

func (m mending) Enabled(context.Context, slog.Level) bool { return true }

func (m mending) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "could not be stored") {
		m.mend()
	}
	return nil
}

// TestMissingJobEndsAfterAFailedWrite checks that a lost job ends, so that its key goes on, even if at first the note
// that the loss was reported cannot be stored.
func TestMissingJobEndsAfterAFailedWrite(t *testing.T) {
	d := newEnvOnServer(t)
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}}
	q, err := queue.OpenQueue(t.Context(), queue.Options{
		Conn: d.Conn, JetStream: d.JS, Rules: rules,
		Settings: queue.Settings{StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	markers := writing(t, d, q)
	taking := func(size int32) {
		s, err := d.JS.Stream(context.WithoutCancel(t.Context()), q.Partitions()[0].Name())
		if err != nil {
			t.Error(err)
			return
		}
		config := s.CachedInfo().Config
		config.MaxMsgSize = size
		if _, err := d.JS.UpdateStream(context.WithoutCancel(t.Context()), config); err != nil {
			t.Error(err)
		}
	}
	d.Log = slog.New(mending{slog.DiscardHandler, func() { taking(-1) }})
	w := newSettlingRig(d, q, &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}, Rules: rules})
	p := w.opened(ownership.Tenure{})
	p.Markers = markers
	j := lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 7, &p.Partition), 7))
	j.Settle()
	taking(1)
	await.Return(t, "the end of the lost job", func() { w.settler.BuryMissing(t.Context(), j, queue.LostByStore) })
	if left, told := w.Sched.At(w.Now()).Unfinished(), p.Told.ToldOf("k"); left != 0 || told != 1 {
		t.Errorf("%d jobs are left and %d losses are noted as reported, want none and 1", left, told)
	}
}
