package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/nats/connect"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// pausePrefix begins the keys of pauses in the control bucket: pause.<api>, or pause.<api>.<key token>. In a token =
// replaces %, because keys of a key-value bucket cannot contain %.
const pausePrefix = "pause."

// PauseEntry returns the control bucket's key for a pause. key is empty for a pause of the whole api.
func PauseEntry(api, key string) string {
	if key == "" {
		return pausePrefix + entryToken(api)
	}
	return pausePrefix + entryToken(api) + "." + entryToken(key)
}

// entryToken returns the token that stands for a name in a key of a key-value bucket. An api's name is its own token.
func entryToken(name string) string { return strings.ReplaceAll(ingest.Token(name), "%", "=") }

// IsPause reports whether a key of the control bucket names a pause.
func IsPause(key string) bool { return strings.HasPrefix(key, pausePrefix) }

// parsePauseEntry returns the api and the key that an entry of PauseEntry names.
func parsePauseEntry(entry string) (api, key string, err error) {
	api, token, of := strings.Cut(strings.TrimPrefix(entry, pausePrefix), ".")
	if api, err = parseEntryToken(api); err != nil || !of {
		return api, "", err
	}
	key, err = parseEntryToken(token)
	return api, key, err
}

func parseEntryToken(token string) (string, error) {
	return ingest.ParseToken(strings.ReplaceAll(token, "=", "%"))
}

// watchRetry is how long Run waits before it starts a watch again.
const watchRetry = 2 * time.Second

// Pauses puts the pauses stored in NATS in force in this process's dispatcher.
type Pauses struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	kv       jetstream.KeyValue
	dispatch *dispatcher.Dispatcher
	log      *slog.Logger
	watcher  jetstream.KeyWatcher
	applied  atomic.Uint64      // the newest revision that take has put in force
	inForce  map[string]inForce // by entry
}

// inForce is a pause that is in force in this process.
type inForce struct {
	revision uint64
	until    time.Time // by the server's clock; zero: the pause does not end by itself
	due      time.Time // by this process's clock: when to check whether the pause is over
}

// OpenPauses puts the stored pauses in force. No call may start before OpenPauses returns, because a restart must not
// call what an operator has paused. The watch of later pauses ends with life.
func OpenPauses(ctx, life context.Context, js jetstream.JetStream, kv jetstream.KeyValue, dispatch *dispatcher.Dispatcher, log *slog.Logger) (*Pauses, error) {
	p := &Pauses{nc: js.Conn(), js: js, kv: kv, dispatch: dispatch, log: log.With("component", "pauses"), inForce: map[string]inForce{}}
	if err := p.watch(life); err != nil {
		return nil, err
	}
	if err := p.catchUp(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Pauses) watch(ctx context.Context) error {
	watcher, err := p.kv.Watch(ctx, pausePrefix+">")
	if err != nil {
		return fmt.Errorf("watch the pauses: %w", err)
	}
	p.watcher = watcher
	return nil
}

// catchUp puts in force all entries that exist when a watch begins. It resumes every pause whose entry is gone. A
// replica of the bucket that lags shows older entries first, or none. So a newer pause counts at once, but an entry
// that ends or replaces a pause counts only when the watch has shown all entries.
func (p *Pauses) catchUp(ctx context.Context) error {
	there := map[string]jetstream.KeyValueEntry{}
	for {
		select {
		case entry, open := <-p.watcher.Updates():
			switch {
			case !open:
				return errors.New("the watch of the pauses has ended")
			case entry == nil:
				p.settle(there)
				return nil
			}
			there[entry.Key()] = entry
			if entry.Operation() == jetstream.KeyValuePut && entry.Revision() > p.inForce[entry.Key()].revision {
				p.take(entry)
			}
		case <-ctx.Done():
			return fmt.Errorf("read the pauses: %w", context.Cause(ctx))
		}
	}
}

// settle puts the newest entries in force, and resumes the pauses whose entries are gone.
func (p *Pauses) settle(there map[string]jetstream.KeyValueEntry) {
	for held := range p.inForce {
		if entry, ok := there[held]; !ok || entry.Operation() != jetstream.KeyValuePut {
			p.resume(held)
		}
	}
	for _, entry := range there {
		p.take(entry)
	}
}

// Run follows the pauses until ctx ends.
func (p *Pauses) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.follow(ctx); err == nil {
			continue
		} else if ctx.Err() == nil {
			p.log.Warn("cannot watch the pauses; those in force stay; trying again", "err", err)
		}
		stream.Sleep(ctx, watchRetry)
		if err := p.watch(ctx); err == nil {
			err = p.catchUp(ctx)
			if err == nil || ctx.Err() != nil {
				continue
			}
		}
	}
	return nil
}

// appliedRevision returns the newest revision of a pause or resumption that is in force. It is safe for concurrent use.
func (p *Pauses) appliedRevision() uint64 { return p.applied.Load() }

func (p *Pauses) follow(ctx context.Context) error {
	for {
		due, stop := p.nextEnd(time.Now())
		select {
		case <-due:
			p.endOver(ctx, time.Now())
		case entry, open := <-p.watcher.Updates():
			if !open {
				stop()
				return errors.New("the watch of the pauses has ended")
			}
			if entry != nil {
				p.take(entry)
			}
		case <-ctx.Done():
			stop()
			return context.Cause(ctx)
		}
		stop()
	}
}

// endRetry is how long endOver waits before it tries again to store the end of a pause.
const endRetry = time.Second

// nextEnd returns a channel that fires when the next pause may be over. The channel is nil if no pause ends by itself.
func (p *Pauses) nextEnd(now time.Time) (due <-chan time.Time, stop func()) {
	var first time.Time
	for _, f := range p.inForce {
		if !f.due.IsZero() && (first.IsZero() || f.due.Before(first)) {
			first = f.due
		}
	}
	if first.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(max(first.Sub(now), 0))
	return timer.C, func() { timer.Stop() }
}

// endOver ends the pauses that are over by the server's clock. It deletes their entries in NATS, so all replicas follow
// as they follow an operator's resumption. Every replica tries to end a pause; the event has an id, so it is stored
// once. A replica that was down meanwhile finds the entry gone, or ends the pause itself.
func (p *Pauses) endOver(ctx context.Context, now time.Time) {
	for entry, f := range p.inForce {
		if f.due.IsZero() || f.due.After(now) {
			continue
		}
		api, key, err := parsePauseEntry(entry)
		if err == nil {
			err = p.end(ctx, entry, f, now, deadletter.Event{
				Type: deadletter.ResumedEvent, API: api, Key: key, ID: fmt.Sprintf("%s.%d.over", entry, f.revision),
				Data: deadletter.HoldData{Why: "the pause is over"},
			})
		}
		if err != nil && ctx.Err() == nil {
			p.log.Warn("could not store the end of a pause; trying again", append(whatHolds(api, key), "err", err)...)
			f.due = now.Add(endRetry)
			p.inForce[entry] = f
		}
	}
}

// end ends one pause, unless another pause has replaced it. It does nothing if the pause is not over by the server's
// clock, because a replica whose clock is ahead must not end the pause for all replicas.
func (p *Pauses) end(ctx context.Context, entry string, f inForce, now time.Time, e deadletter.Event) error {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	s, err := p.js.Stream(ctx, "KV_"+connect.ControlBucket)
	if err != nil {
		return fmt.Errorf("ask the server for its time: %w", err)
	}
	if left := f.until.Sub(s.CachedInfo().TimeStamp); left > 0 {
		f.due = now.Add(left)
		p.inForce[entry] = f
		return nil
	}
	err = p.kv.Delete(ctx, entry, jetstream.LastRevision(f.revision))
	if isWrongSequence(err) {
		// Another process has changed the entry. The watch reports that change.
		p.inForce[entry] = inForce{revision: f.revision}
		return nil
	}
	if err != nil {
		return err
	}
	p.inForce[entry] = inForce{revision: f.revision}
	return e.Publish(ctx, p.js)
}

// endWait bounds the time to store the end of one pause.
const endWait = 5 * time.Second

// readPause reads an entry. If the entry cannot be parsed, it counts as a pause that does not end by itself.
func readPause(entry jetstream.KeyValueEntry) schedule.Pause {
	var word schedule.Pause
	if json.Unmarshal(entry.Value(), &word) != nil {
		word = schedule.Pause{At: entry.Created()}
	}
	word.Until = time.Time{}
	if word.ForMS > 0 { // by the server's clock, which is the same for all replicas
		word.Until = entry.Created().UTC().Add(time.Duration(word.ForMS) * time.Millisecond).Truncate(time.Millisecond)
	}
	return word
}

// take puts one entry in force.
func (p *Pauses) take(entry jetstream.KeyValueEntry) {
	defer func() { p.applied.Store(max(p.applied.Load(), entry.Revision())) }()
	if entry.Operation() != jetstream.KeyValuePut {
		p.resume(entry.Key())
		return
	}
	api, key, err := parsePauseEntry(entry.Key())
	if err != nil {
		p.log.Error("weir ignores a pause: its key cannot be decoded", "entry", entry.Key(), "err", err)
		return
	}
	if f, ok := p.inForce[entry.Key()]; ok && f.revision == entry.Revision() {
		return // the watch was started again and delivers the entry once more
	}
	word := readPause(entry)
	if err := p.dispatch.Desk.Pause(api, key, word); err != nil {
		p.log.Error("could not apply a pause", append(whatHolds(api, key), "err", err)...)
		return
	}
	p.inForce[entry.Key()] = inForce{entry.Revision(), word.Until, word.Until}
	p.log.Info("paused", whatHolds(api, key, "by", word.By, "reason", word.Why)...)
}

func (p *Pauses) resume(entry string) {
	if _, ok := p.inForce[entry]; !ok {
		return
	}
	delete(p.inForce, entry)
	if api, key, err := parsePauseEntry(entry); err == nil {
		p.dispatch.Desk.Resume(api, key)
		p.log.Info("resumed", whatHolds(api, key)...)
	}
}

// whatHolds returns the log attributes of an api or one of its keys, without empty ones.
func whatHolds(api, key string, more ...string) []any {
	attrs := []any{"api", api}
	for pair := range slices.Chunk(append([]string{"key", key}, more...), 2) {
		if pair[1] != "" {
			attrs = append(attrs, pair[0], pair[1])
		}
	}
	return attrs
}
