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
	"weir/cmd/weir/internal/serve/restoreguard"
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
	keys, err := stream.Damaged(ctx, w.js, bucket, damagedAgain)
	switch {
	case err != nil:
		return err
	case w.server != nil:
		w.tellLost(keys) // before the mending: the next start finds no damage
		if w.unread, err = stream.MendBucket(ctx, w.js, bucket, keys, stopsWhenEmpty); err == nil && len(keys) == 0 {
			w.tellLost(w.unread) // an interrupted start found them
		}
		return err
	case len(keys) == 0:
		return nil
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

func (w *records) tellLost(keys []string) {
	for _, key := range keys {
		w.log.Error("a value of the control bucket is damaged", "key", key, "what", lostValue(key))
	}
}

// stopsWhenEmpty reports whether a key of the control bucket grants less with an empty value than without one. With an
// empty checkpoint or account what may have been called counts as used. An empty pause is in force. A callback with an
// empty position posts all ends that are still stored. An empty order about a restored store refuses the start.
func stopsWhenEmpty(key string) bool {
	return isLimit(key) || admin.IsPause(key) || webhook.IsCallbackPosition(key) || key == restoreguard.OrderKey
}

// isLimit reports whether a key of the control bucket holds what limits have used.
func isLimit(key string) bool {
	return strings.HasPrefix(key, "limits.") || strings.HasPrefix(key, "account.")
}

// lostValue says what follows from a damaged value, and what to do.
func lostValue(key string) string {
	what := "the value of " + key + " is lost, because the store is damaged: look at the disk. "
	switch {
	case isLimit(key):
		return what + "The limits count as used what may have been called, and open when that is older than their periods; `weir show` says until when"
	case admin.IsPause(key):
		return what + "What was paused stays paused: `weir status` lists it, `weir resume` ends it"
	case webhook.IsCallbackPosition(key):
		return what + "The callback posts every end again that is kept"
	case key == restoreguard.OrderKey:
		return what + "It says when the store was restored from a backup: weir starts only with --restored"
	}
	return what + "Repeat orders that are missing in `weir status`"
}

// noteUnread has an event sent for each damaged value of the control bucket.
func (w *records) noteUnread() {
	for _, key := range w.unread {
		w.streams.Note(dispatcher.StreamChange{Stream: "KV_" + connect.ControlBucket, What: lostValue(key), At: time.Now()})
	}
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
