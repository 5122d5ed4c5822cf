package deadletter

import (
	"context"
	"fmt"
	"time"
)

// Bounds of looking again while a redrive runs.
const (
	// freshLook is how old a look for traces may be when a letter of its key is published. Of what comes in between the
	// queue itself tells where the job was never taken: it knows the id.
	freshLook = 250 * time.Millisecond
	// lookBack is how much farther back the next look goes: servers' clocks differ.
	lookBack = 10 * time.Second
)

// jobKey is a key of an api.
type jobKey struct{ api, key string }

// lastLook is when the traces of a key's jobs were looked for.
type lastLook struct {
	at     time.Time // by our clock
	server time.Time // by the server's
}

// lookAgain reads what became of the jobs of a letter's key since it was last read.
func (x *run) lookAgain(ctx context.Context, k *Kept) error {
	name := jobKey{k.API, k.Key}
	x.mu.Lock()
	last, before := x.looked[name]
	x.mu.Unlock()
	if before && time.Since(last.at) < freshLook {
		return nil
	}
	if !before {
		last.server = x.traced
	}
	next := lastLook{at: time.Now()}
	var err error
	if next.server, err = x.opts.Browser.now(ctx); err != nil {
		return err
	}
	where := historyScope{k.API: {keys: map[string]struct{}{k.Key: {}}, since: last.server.Add(-lookBack)}}
	if err := x.found.trace(ctx, x.opts.Browser, x.opts.Calls, where); err != nil {
		return err
	}
	x.mu.Lock()
	x.looked[name] = next
	x.mu.Unlock()
	return nil
}

// forgetKey forgets a key whose letters of a chunk are dealt with.
func (x *run) forgetKey(name jobKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.looked, name)
}

// now is the time by the server that keeps the letters.
func (b *Browser) now(ctx context.Context) (time.Time, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("what time it is for the dead letters: %w", err)
	}
	return info.TimeStamp, nil
}
