package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// watchWait bounds how long a server may take to begin a watch. The client alone would ask once and wait until its
// context ends.
const watchWait = 30 * time.Second

var errWatchWait = errors.New("the server did not begin the watch")

// Renewing returns a key-value bucket whose watches end when a lost connection is back, because a restarted server has
// forgotten them. The client would notice that only by missing heartbeats, 10 to 20 seconds later. When a watch ends,
// its reader must begin a new one, and so reads the present entries: all that the leader has, see WatchWhole.
func Renewing(kv jetstream.KeyValue, nc *nats.Conn) jetstream.KeyValue { return renewing{kv, nc} }

type renewing struct {
	jetstream.KeyValue
	nc *nats.Conn
}

// Watch implements jetstream.KeyValue.
func (r renewing) Watch(ctx context.Context, keys string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return r.begin(ctx, func(ctx context.Context) (jetstream.KeyWatcher, error) {
		return WatchWhole(ctx, r.nc, r.KeyValue, keys, opts...)
	})
}

// WatchAll implements jetstream.KeyValue.
func (r renewing) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return r.Watch(ctx, jetstream.AllKeys, opts...)
}

// errWatchEnded reports that a watch ended before it had shown all present entries.
var errWatchEnded = errors.New("the watch of the key-value bucket ended early: try again")

// History implements jetstream.KeyValue. It waits until it has read every entry that the stream's leader has: a replica
// that lags would leave out the newest.
func (r renewing) History(ctx context.Context, key string, opts ...jetstream.WatchOpt) ([]jetstream.KeyValueEntry, error) {
	watcher, err := r.Watch(ctx, key, append(opts, jetstream.IncludeHistory())...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stopWatch(watcher) }()
	var entries []jetstream.KeyValueEntry
	for {
		select {
		case entry, open := <-watcher.Updates():
			switch {
			case !open:
				return nil, errWatchEnded
			case entry != nil:
				entries = append(entries, entry)
			case len(entries) == 0:
				return nil, jetstream.ErrKeyNotFound
			default:
				return entries, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begun is a watch that a server has begun, or the reason why it has not.
type begun struct {
	watcher jetstream.KeyWatcher
	err     error
}

func (r renewing) begin(ctx context.Context, watch func(context.Context) (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) {
	ctx, end := context.WithCancelCause(ctx)
	back := r.nc.StatusChanged(nats.CONNECTED) // before the watch begins: otherwise a loss in between could be missed
	began := make(chan begun, 1)
	go func() {
		watcher, err := watch(ctx)
		began <- begun{watcher, err}
	}()
	late := time.NewTimer(watchWait)
	defer late.Stop()
	var b begun
	select {
	case b = <-began:
	case <-back:
		end(errReconnected)
		b = <-began
	case <-late.C:
		end(errWatchWait)
		b = <-began
	}
	if b.err == nil && ctx.Err() != nil {
		b.err = stopWatch(b.watcher)
	}
	if cause := context.Cause(ctx); cause != nil || b.err != nil {
		end(nil)
		r.nc.RemoveStatusListener(back)
		return nil, fmt.Errorf("watch %s: %w", r.Bucket(), errors.Join(cause, b.err))
	}
	w := &renewingWatcher{KeyWatcher: b.watcher, updates: make(chan jetstream.KeyValueEntry), end: end}
	go func() {
		defer close(w.updates)
		defer r.nc.RemoveStatusListener(back)
		w.run(ctx, back)
	}()
	return w, nil
}

var errReconnected = errors.New("the connection was lost and is back")

// renewingWatcher delivers the entries of another watcher until a lost connection is back.
type renewingWatcher struct {
	jetstream.KeyWatcher
	updates chan jetstream.KeyValueEntry
	end     context.CancelCauseFunc
}

// run delivers entries until the other watcher ends, ctx ends, or a lost connection is back.
func (w *renewingWatcher) run(ctx context.Context, back <-chan nats.Status) {
	defer w.end(nil)
	for {
		var entry jetstream.KeyValueEntry
		open := true
		select {
		case entry, open = <-w.KeyWatcher.Updates():
		case <-back:
			_ = w.KeyWatcher.Stop() // the server may have forgotten it
			return
		case <-ctx.Done():
			return
		}
		if !open {
			return
		}
		select {
		case w.updates <- entry:
		case <-back:
			_ = w.KeyWatcher.Stop()
			return
		case <-ctx.Done():
			return
		}
	}
}

// Updates implements jetstream.KeyWatcher.
func (w *renewingWatcher) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

// Stop implements jetstream.KeyWatcher. It returns nil if the watch has ended before.
func (w *renewingWatcher) Stop() error {
	defer w.end(nil)
	return stopWatch(w.KeyWatcher)
}

// stopWatch stops a watch that may have ended. The client ends a watch when its context ends or its connection closes,
// and then refuses to stop the watch.
func stopWatch(w jetstream.KeyWatcher) error {
	if err := w.Stop(); err != nil && !errors.Is(err, nats.ErrBadSubscription) {
		return err
	}
	return nil
}
