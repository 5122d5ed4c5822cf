package settle

import (
	"context"
	"log/slog"
	"time"

	"weir/bucket/stream"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamOptions are the settings of the streams of results and calls.
type StreamOptions struct {
	JetStream             jetstream.JetStream
	Replicas              int
	ResultsAge, LedgerAge time.Duration
	MaxStore              int64             // bounds the bytes that one stream may ask of the server; 0 for no bound
	FirstSeq              map[string]uint64 // by name, the first sequence of a stream that is created; 1 if missing
	Log                   *slog.Logger
}

// CreateStreams creates the streams of results and calls, or updates their ages to those in the options.
func CreateStreams(ctx context.Context, o StreamOptions) error {
	bytes := func(want int64) int64 {
		if o.MaxStore > 0 {
			return min(want, o.MaxStore)
		}
		return want
	}
	for _, s := range []stream.Options{{Kind: "results", Configured: stream.AgeBound, Config: jetstream.StreamConfig{
		Name: ledger.ResultsStream, Subjects: []string{ledger.ResultSubjects.Below(), FenceSubject}, MaxAge: o.ResultsAge, MaxBytes: bytes(maxResultsBytes),
		Description: "weir: results of finished jobs, weir.results.<api>.<key>",
	}}, {Kind: "ledger", Config: jetstream.StreamConfig{
		Name: ledger.CallsStream, Subjects: []string{ledger.CallSubjects.Below()}, MaxAge: o.LedgerAge, MaxBytes: bytes(maxLedgerBytes),
		Description: "weir: the ledger, one record per call, weir.calls.<api>.<key>",
	}}} {
		cfg := &s.Config
		s.Log, cfg.FirstSeq = o.Log, o.FirstSeq[cfg.Name]
		cfg.Retention, cfg.Storage, cfg.Replicas, cfg.Discard = jetstream.LimitsPolicy, jetstream.FileStorage, o.Replicas, jetstream.DiscardOld
		cfg.AllowDirect, cfg.AllowAtomicPublish = true, true
		if _, err := stream.EnsureStream(ctx, o.JetStream, s); err != nil {
			return err
		}
	}
	return nil
}

// Bounds of the streams.
const (
	maxResultsBytes = 8 << 30
	maxLedgerBytes  = 8 << 30
)
