package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/httpd/webhook"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/streamwatch"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// watchStreams creates the watches over weir's streams and over their copies.
func (w *Worker) watchStreams() {
	o := streamwatch.Options{
		JetStream: w.js, Instance: w.settings.Instance, Log: w.log, Queues: w.queueStreams, Remake: w.remakeStreams,
		Remade:  []string{deadletter.Stream, deadletter.EventsStream},
		Buckets: []string{"KV_" + connect.ControlBucket, "KV_" + connect.ConfigBucket},
	}
	if w.settings.Has(environment.RoleDispatch) {
		o.Remade = append(o.Remade, ledger.CallsStream, ledger.ResultsStream)
		o.Buckets = append(o.Buckets, "KV_"+connect.LeasesBucket)
	}
	w.streams = streamwatch.New(o)
	w.copies = streamwatch.NewCopyWatch(streamwatch.CopyOptions{
		JetStream: w.js, Log: w.log,
		Streams: func() []string {
			return append(connect.CommonStreams(), slices.Sorted(slices.Values(w.queueStreams()))...)
		},
	})
}

// queueStreams returns the streams of all queues.
func (w *Worker) queueStreams() (names []string) {
	for _, q := range *w.follower.takers.Load() {
		for _, p := range q.Partitions() {
			names = append(names, p.Name())
		}
	}
	return names
}

// remakeStreams creates again the deleted streams that all apis share.
func (w *Worker) remakeStreams(ctx context.Context, firstSeq map[string]uint64) error {
	letters := w.letterOptions(w.follower.inForce.Load())
	letters.FirstSeq = firstSeq
	err := deadletter.EnsureStreams(ctx, letters)
	if w.dispatch != nil {
		o := w.dispatchOptions(w.follower.inForce.Load())
		o.FirstSeq = firstSeq
		err = errors.Join(err, dispatcher.EnsureStreams(ctx, o))
	}
	return err
}

// damagedAgain is after how long a value that NATS could not read is read again, before it counts as damaged.
const damagedAgain = 2 * time.Second

// mostNamed is how many damaged keys an error names.
const mostNamed = 20

// mendControl creates the control bucket again without its damaged values, because a write of such a key would block the
// bucket. If the server is external, other replicas may use the bucket, and mendControl fails instead.
func (w *records) mendControl(ctx context.Context) (err error) {
	const bucket = connect.ControlBucket
	if w.server != nil {
		w.unread, err = stream.MendBucket(ctx, w.js, bucket)
		return err
	}
	keys, err := stream.Damaged(ctx, w.js, bucket, damagedAgain)
	if err != nil || len(keys) == 0 {
		return err
	}
	names := strings.Join(keys[:min(len(keys), mostNamed)], ", ")
	if len(keys) > mostNamed {
		names += ", …"
	}
	return cli.Refused(fmt.Errorf("the store is damaged: NATS cannot read %s of the key-value bucket %s (%s). After a write to one of them it would answer nothing more for this bucket. "+
		"Look at the disks of the NATS servers. If the bucket has copies, empty the store of the server that has the damaged one. If it has none, stop every weir, "+
		"delete the bucket (`nats stream rm KV_%s`), start one weir with `weir serve --restored`, which grants nothing again, and repeat pauses and orders. Callbacks then post no ends from before",
		cli.Count(len(keys), "value"), bucket, names, bucket))
}

// tellUnread logs which values of the control bucket were damaged, and stores a replacement for some of them. A pause
// that cannot be read stays in force. A callback whose position cannot be read posts all ends that are still stored
// again.
func (w *records) tellUnread(ctx context.Context) error {
	for _, key := range w.unread {
		what := "its value cannot be read any more, the store is damaged: look at the disk"
		switch {
		case strings.HasPrefix(key, "limits.") || strings.HasPrefix(key, "account."):
			what += ". The limits count as used what may have been called, and open when that is older than their periods; `weir show` says until when"
		case admin.IsPause(key):
			if _, err := w.control.Put(ctx, key, nil); err != nil {
				return fmt.Errorf("pause again what was paused: %w", err)
			}
			what += ". What was paused stays paused: `weir status` lists it, `weir resume` ends it"
		case webhook.IsCallbackPosition(key):
			if _, err := w.control.Put(ctx, key, nil); err != nil {
				return fmt.Errorf("begin a callback again: %w", err)
			}
			what += ". The callback posts every end again that is kept"
		default:
			what += ". Repeat orders that are missing in `weir status`"
		}
		what = "the value of " + key + " was lost: " + what
		w.log.Error("a value of the control bucket is damaged", "key", key, "what", what)
		w.streams.Note(dispatcher.StreamChange{Stream: "KV_" + connect.ControlBucket, What: what, At: time.Now()})
	}
	return nil
}

// ledgerMade is the key in the control bucket that says that this store once had a ledger. If the key exists and the
// ledger does not, the ledger was deleted.
const ledgerMade = "ledger.made"

// findLedger checks whether the ledger was deleted while no weir ran. If it was, findLedger returns the first sequence
// for the new ledger.
func (w *records) findLedger(ctx context.Context) (firstSeq map[string]uint64, err error) {
	bucket := w.control.Bucket()
	made, err := stream.NewestEntry(ctx, w.js.Conn(), bucket, ledgerMade)
	if err != nil {
		return nil, fmt.Errorf("look whether there was a ledger: %w", err)
	}
	if made == nil {
		return nil, nil
	}
	_, err = stream.Look(ctx, w.js, ledger.CallsStream)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	const what = "the ledger was deleted by hand while weir was stopped, and is made again, empty: what keys were called lately counts as called now"
	w.log.Error("a stream was changed by hand", "stream", ledger.CallsStream, "what", what)
	w.streams.Note(dispatcher.StreamChange{Stream: ledger.CallsStream, What: what, At: time.Now()})
	return map[string]uint64{ledger.CallsStream: 2}, nil
}

// noteLedger stores that this store has a ledger.
func (w *records) noteLedger(ctx context.Context) error {
	_, err := w.control.Create(ctx, ledgerMade, nil)
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("note that there is a ledger: %w", err)
	}
	return nil
}
