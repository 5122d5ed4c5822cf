package stream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// wholeAgain is how long a watch waits for the leader's newest entry before it asks the leader again.
const wholeAgain = time.Second

// WatchWhole is kv.Watch, except that its nil, which ends the present entries, comes when the watch has shown all that
// the bucket's leader has. A replica that lags shows older entries, or none, and ends them too early. So WatchWhole
// first asks the leader for the newest entry, and holds nil back until that entry or a later one was shown. If the
// replica does not show it within 30 seconds, the watch ends. opts must not ignore deletions, because the newest entry
// may be one. WatchWhole blocks until the leader answers, for about a minute at most, or until ctx ends.
func WatchWhole(
	ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, keys string, opts ...jetstream.WatchOpt,
) (jetstream.KeyWatcher, error) {
	w := &wholeWatcher{updates: make(chan jetstream.KeyValueEntry)}
	w.newest = func(ctx context.Context) (uint64, error) {
		m, err := NewestEntry(ctx, nc, kv.Bucket(), keys)
		if err != nil || m == nil {
			return 0, err
		}
		return m.Seq, nil
	}
	newest, err := establish(ctx, w.newest)
	if err != nil {
		return nil, err
	}
	if w.KeyWatcher, err = kv.Watch(ctx, keys, opts...); err != nil {
		return nil, err
	}
	ctx, w.stopped = context.WithCancel(ctx)
	go w.run(ctx, beginning{newest: newest})
	return w, nil
}

// beginning says whether a watch has shown everything that the bucket held when the watch began.
type beginning struct {
	newest uint64 // the newest revision that the leader had
	shown  uint64 // the newest revision that the replica has shown
	read   bool   // the replica has shown all that it had
}

// whole reports whether the watch has shown all that the leader had.
func (b *beginning) whole() bool { return b.read && b.shown >= b.newest }

// wholeWatcher delivers the entries of another watcher, and nil when the watch has shown all that the leader had.
type wholeWatcher struct {
	jetstream.KeyWatcher
	newest  func(context.Context) (uint64, error)
	updates chan jetstream.KeyValueEntry
	stopped context.CancelFunc
}

// run delivers entries until the other watcher ends, ctx ends, or the replica is too late.
func (w *wholeWatcher) run(ctx context.Context, b beginning) {
	defer close(w.updates)
	defer w.stopped()
	var again, late <-chan time.Time // nil unless nil is held back
	for told := false; ; {
		select {
		case entry, open := <-w.KeyWatcher.Updates():
			switch {
			case !open:
				return
			case entry == nil:
				b.read = true
				again, late = time.After(wholeAgain), time.After(watchWait)
			default:
				b.shown = max(b.shown, entry.Revision())
				if !w.deliver(ctx, entry) {
					return
				}
			}
		case <-again:
			b.newest = w.remaining(ctx, b.newest)
			again = time.After(wholeAgain)
		case <-late:
			_ = stopWatch(w.KeyWatcher)
			return
		case <-ctx.Done():
			return
		}
		if !told && b.whole() {
			if told, again, late = true, nil, nil; !w.deliver(ctx, nil) {
				return
			}
		}
	}
}

// remaining returns the leader's newest revision, or upTo if that is lower. The entry with the revision upTo may have
// expired, or an operator may have removed it. Then no replica shows it.
func (w *wholeWatcher) remaining(ctx context.Context, upTo uint64) uint64 {
	ctx, cancel := context.WithTimeout(ctx, wholeAgain)
	defer cancel()
	newest, err := w.newest(ctx)
	if err != nil {
		return upTo
	}
	return min(upTo, newest)
}

func (w *wholeWatcher) deliver(ctx context.Context, entry jetstream.KeyValueEntry) bool {
	select {
	case w.updates <- entry:
		return true
	case <-ctx.Done():
		return false
	}
}

// Updates implements jetstream.KeyWatcher.
func (w *wholeWatcher) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

// Stop implements jetstream.KeyWatcher.
func (w *wholeWatcher) Stop() error {
	w.stopped()
	return w.KeyWatcher.Stop()
}
