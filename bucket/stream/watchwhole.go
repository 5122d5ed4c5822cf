package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrUnreadable says that a server counts a value that it cannot read.
var ErrUnreadable = errors.New("cannot be read")

// wholeAgain is how long a watch waits for the leader's newest entry before it asks the leader again.
const wholeAgain = time.Second

// WatchWhole is kv.Watch, except that its nil, which ends the present entries, comes when the watch has shown all that
// the bucket's leader has. A replica that lags shows older entries, or none, and ends them too early. So WatchWhole
// first asks the leader for the newest entry, and holds nil back until that entry or a later one was shown. The watch
// ends without nil if it shows no entry for 30 seconds. opts must not ignore deletions, because the newest entry may be
// one. WatchWhole fails with ErrUnreadable if the leader cannot read the newest entry. It blocks until the leader
// answers, for about a minute at most, or until ctx ends.
func WatchWhole(
	ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, keys string, opts ...jetstream.WatchOpt,
) (jetstream.KeyWatcher, error) {
	w := &wholeWatcher{updates: make(chan jetstream.KeyValueEntry)}
	w.newest = func(ctx context.Context) (uint64, error) {
		end, readable, err := End(ctx, nc, "KV_"+kv.Bucket(), "$KV."+kv.Bucket()+"."+keys)
		if err == nil && !readable {
			err = fmt.Errorf("the newest value of %s in the key-value bucket %s %w: look at the disk of its server", keys, kv.Bucket(), ErrUnreadable)
		}
		return end.Seq, err
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
	newest uint64 // the newest revision that the leader had; 0: it had none
	shown  uint64 // the newest revision that the replica has shown
	read   bool   // the replica has shown all that it had
}

// whole reports whether the watch has shown all that the leader had.
func (b *beginning) whole() bool { return b.read && b.shown >= b.newest }

// learn takes the newest revision that the leader had when the replica had shown nothing newer than shown.
//
// If the leader has nothing newer, the watch has shown all, because entries come in the order of their revisions. The
// client does not notice that if the server counted an entry that it cannot read. If the leader's newest revision is
// lower than before, the entry with that revision has expired, or an operator has removed it. Then no replica shows it.
func (b *beginning) learn(newest uint64) {
	b.read = b.read || newest <= b.shown
	if b.read {
		b.newest = min(b.newest, newest)
	}
}

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
	again, late := time.After(wholeAgain), time.After(watchWait)
	for told := false; ; {
		select {
		case entry, open := <-w.KeyWatcher.Updates():
			switch {
			case !open:
				return
			case entry == nil:
				b.read = true
			default:
				b.shown = max(b.shown, entry.Revision())
				if !w.deliver(ctx, entry) {
					return
				}
			}
			if !told {
				again, late = time.After(wholeAgain), time.After(watchWait)
			}
		case <-again:
			asking, cancel := context.WithTimeout(ctx, wholeAgain)
			if newest, err := w.newest(asking); err == nil {
				b.learn(newest)
			}
			cancel()
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
