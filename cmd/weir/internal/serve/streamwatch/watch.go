package streamwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/deadletter"
	"weir/dispatcher"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a watch.
const (
	lookEvery  = 3 * time.Second
	lookWait   = 10 * time.Second // bounds how long one look may take
	reportFor  = time.Hour        // how long Changes returns a change
	mostTold   = 32               // the most reported changes; the newest stay
	mostEvents = 64               // the most events that wait to be stored; the newest stay
	remadeAt   = 1 << 20          // a remade stream begins at its last known sequence plus this
)

// Options of a Watch. All are required.
type Options struct {
	JetStream jetstream.JetStream
	Instance  string
	// Remade are the streams that Remake makes again. Remake receives the first sequence of each missing stream in
	// firstSeq.
	Remade []string
	Remake func(ctx context.Context, firstSeq map[string]uint64) error
	// Buckets are the streams of key-value buckets, which are not made again.
	Buckets []string
	// Queues returns the names of the streams of all queues. The owners of the partitions make these streams again.
	Queues func() []string
	Log    *slog.Logger
}

// Watch detects changes to streams. It is safe for concurrent use, except Look: only one goroutine may call Look.
type Watch struct {
	Options

	seen   map[string]seen // by name: streams at the last look
	absent map[string]int  // by name: how many looks in a row found the stream missing

	mu      sync.Mutex // guards changes, gone and events
	changes []dispatcher.StreamChange
	gone    map[string]dispatcher.StreamChange
	events  []dispatcher.StreamChange // changes whose events are not stored yet
}

// seen is the state of a stream at the last look.
type seen struct {
	born        time.Time
	first, last uint64
	msgs        uint64
	newest      time.Time
	age         time.Duration
}

// New returns a Watch that has not looked yet.
func New(o Options) *Watch {
	o.Log = o.Log.With("component", "streams")
	return &Watch{Options: o, seen: map[string]seen{}, absent: map[string]int{}, gone: map[string]dispatcher.StreamChange{}}
}

// Run looks every three seconds until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		w.Look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Look looks once and reports the changes since the last look. If it cannot read a stream, it keeps the last known
// state of that stream.
func (w *Watch) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	missing, there := map[string]bool{}, map[string]bool{} // a stream that could not be read is in neither
	queues := w.Queues()
	for _, name := range append(slices.Clone(w.Remade), w.Buckets...) {
		s, err := w.JetStream.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing[name] = true
		case err == nil:
			there[name] = true
			w.compare(name, s.CachedInfo())
		}
	}
	w.lookForQueues(ctx, queues, missing, there)
	w.forget(queues)
	w.judge(ctx, missing, there)
	w.storeEvents(ctx)
}

// lookForQueues adds the streams of queues to missing and there.
func (w *Watch) lookForQueues(ctx context.Context, queues []string, missing, there map[string]bool) {
	lister := w.JetStream.StreamNames(ctx, jetstream.WithStreamListSubject("weir.q.>"))
	for name := range lister.Name() {
		there[name] = true
	}
	if err := lister.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return
	}
	for _, name := range queues {
		if !there[name] {
			missing[name] = true
		}
	}
}

// compare reports what was removed by hand from an existing stream since the last look.
func (w *Watch) compare(name string, info *jetstream.StreamInfo) {
	now := seen{info.Created, info.State.FirstSeq, info.State.LastSeq, info.State.Msgs, info.State.LastTime, info.Config.MaxAge}
	was, known := w.seen[name]
	w.seen[name] = now
	// If two looks did not see the stream, lost has already reported that, and back reports its return.
	if !known || w.absent[name] > 1 {
		return
	}
	if what := now.lacks(was, info.TimeStamp); what != "" && name != deadletter.Stream { // operators may purge letters
		w.tell(dispatcher.StreamChange{Stream: name, What: what, At: time.Now()})
	}
}

// lacks says what was removed by hand from a stream since the last look; it returns "" if nothing was. It ignores
// messages that may have been removed because of their age.
func (s seen) lacks(was seen, now time.Time) string {
	switch {
	case !s.born.Equal(was.born):
		return "the stream was deleted by hand, and made again: what it held is gone"
	case was.msgs > 0 && s.first > was.last && (s.age == 0 || now.Sub(was.newest) < s.age):
		return fmt.Sprintf("it was purged by hand: the %s that it held are gone", cli.Count(was.msgs, "message"))
	}
	return ""
}

// forget drops what is known of missing streams that Watch no longer watches, because their queues no longer exist.
func (w *Watch) forget(queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.absent {
		if !slices.Contains(w.Remade, name) && !slices.Contains(w.Buckets, name) && !slices.Contains(queues, name) {
			delete(w.absent, name)
			delete(w.gone, name)
		}
	}
}

// judge reports the streams that are gone or back, and makes the missing Remade streams again.
func (w *Watch) judge(ctx context.Context, missing, there map[string]bool) {
	for name := range w.absent {
		if there[name] {
			delete(w.absent, name)
			w.back(name)
		}
	}
	firstSeq := map[string]uint64{}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if w.absent[name]++; w.absent[name] < 2 { // a server of a cluster may not know a new stream yet
			continue
		}
		remade := slices.Contains(w.Remade, name)
		w.lost(name, remade)
		if remade {
			firstSeq[name] = w.seen[name].last + remadeAt
		}
	}
	if len(firstSeq) == 0 {
		return
	}
	if err := w.Remake(ctx, firstSeq); err != nil {
		w.Log.Error("could not create missing streams again; trying again", "streams", slices.Sorted(maps.Keys(firstSeq)), "err", err)
	}
}

// lost reports a missing stream. It reports a stream only once until the stream is back.
func (w *Watch) lost(name string, remade bool) {
	w.mu.Lock()
	_, known := w.gone[name]
	w.mu.Unlock()
	if known {
		return
	}
	what := "the stream was deleted; "
	switch {
	case remade:
		what += "weir makes it again, and what it held is gone"
	case slices.Contains(w.Buckets, name):
		what += "pauses, checkpoints or the configuration stood there; put it back, or restart weir, which makes it anew: repeat pauses then"
	default:
		what += "the owner of its partition makes it again, and letters of the jobs that it knows"
	}
	w.tell(dispatcher.StreamChange{Stream: name, What: what, At: time.Now(), Gone: true})
}

// back reports that a stream exists again.
func (w *Watch) back(name string) {
	w.mu.Lock()
	c, known := w.gone[name]
	delete(w.gone, name)
	w.mu.Unlock()
	if !known {
		return
	}
	c.Gone, c.What, c.At = false, "the stream was deleted by hand and is there again: what it held is gone", time.Now()
	w.tell(c)
}

// tell logs a change that this Watch has found, and notes it.
func (w *Watch) tell(c dispatcher.StreamChange) {
	w.Log.Error("a stream was changed by hand", "stream", c.Stream, "what", c.What)
	w.Note(c)
}

// Note adds a change to the reported ones. The caller must have logged it.
func (w *Watch) Note(c dispatcher.StreamChange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Gone {
		w.gone[c.Stream] = c
	} else {
		w.changes = append(w.changes, c)
		w.changes = w.changes[max(0, len(w.changes)-mostTold):]
	}
	w.events = append(w.events, c)
	w.events = w.events[max(0, len(w.events)-mostEvents):]
}

// Changes returns the changes of the last hour, and the streams that are gone now.
func (w *Watch) Changes() []dispatcher.StreamChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []dispatcher.StreamChange
	for _, name := range slices.Sorted(maps.Keys(w.gone)) {
		all = append(all, w.gone[name])
	}
	for _, c := range w.changes {
		if time.Since(c.At) < reportFor {
			all = append(all, c)
		}
	}
	return all
}

// Err returns an error that names the streams that are gone; nil if there are none.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.gone) == 0 {
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(w.gone)) {
		all = append(all, name+": "+w.gone[name].What)
	}
	return errors.New(strings.Join(all, "; "))
}

// ChangeData is the data of unhealthy events about a stream that was changed. The replica may be ready: only a stream
// that is gone makes it not ready.
type ChangeData struct {
	Instance string `json:"instance"`
	Why      string `json:"why"`
	Stream   string `json:"stream"`
}

// storeEvents stores the events of reported changes. If it cannot store an event, the next look tries again.
func (w *Watch) storeEvents(ctx context.Context) {
	w.mu.Lock()
	waiting := slices.Clone(w.events)
	w.mu.Unlock()
	for i, c := range waiting {
		e := deadletter.Event{
			Type: deadletter.UnhealthyEvent, ID: fmt.Sprintf("stream.%s.%s.%d", w.Instance, c.Stream, c.At.UnixNano()),
			Data: ChangeData{Instance: w.Instance, Why: c.Stream + ": " + c.What, Stream: c.Stream},
		}
		if err := e.Publish(ctx, w.JetStream); err != nil {
			waiting = waiting[:i]
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	stored := map[dispatcher.StreamChange]bool{}
	for _, c := range waiting {
		stored[c] = true
	}
	w.events = slices.DeleteFunc(w.events, func(c dispatcher.StreamChange) bool { return stored[c] })
}
