package streamwatch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a CopyWatch.
const (
	copiesEvery = 10 * time.Second
	copiesWait  = 8 * time.Second  // bounds how long one look may take
	leaderWait  = 2 * time.Second  // how long a look waits for the leader of one stream
	mostAsked   = 64               // the most streams that one look asks for
	mostNamed   = 16               // the most streams that Lacking names for each server
	seenWithin  = 10 * time.Second // a server that its leader heard of within this time has a copy; as in nats-server
	stuckAfter  = 30 * time.Second // how long a copy may stay equally far behind
)

// CopyOptions are the options of a CopyWatch. All are required.
type CopyOptions struct {
	JetStream jetstream.JetStream // takes a stream's information from the stream's leader: see stream.FromLeader
	Streams   func() []string     // returns the names of all streams of weir, always in the same order
	Log       *slog.Logger
}

// CopyWatch notices NATS servers that lack current copies of weir's streams. It is safe for concurrent use, except
// Look: only one goroutine may call Look.
type CopyWatch struct {
	CopyOptions

	next int             // the place in the list of streams where the next look begins
	told map[string]bool // by name: servers that the log said lack copies

	mu      sync.Mutex // guards streams
	streams map[string]copies
}

// copies is what the last look at a stream found. A stream that has all its copies is absent from CopyWatch.streams.
type copies struct {
	order         int // the stream's place in the list
	current, want int
	missing       map[string]missing // by server
}

// missing is a copy that is not current.
type missing struct {
	since   time.Time
	lag     uint64
	offline bool
	certain bool // the copy is reported; stays true until the copy is current
}

// NewCopyWatch returns a CopyWatch that has not looked yet.
func NewCopyWatch(o CopyOptions) *CopyWatch {
	o.Log = o.Log.With("component", "streams")
	return &CopyWatch{CopyOptions: o, told: map[string]bool{}, streams: map[string]copies{}}
}

// Run looks every ten seconds until ctx ends.
func (w *CopyWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(copiesEvery)
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

// Look asks the leaders of the next streams for the stream's copies. If a stream has no leader, Look keeps what it knew.
func (w *CopyWatch) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, copiesWait)
	defer cancel()
	names := w.Streams()
	w.forget(names)
	for range min(len(names), mostAsked) {
		if ctx.Err() != nil {
			break
		}
		w.next %= len(names)
		w.ask(ctx, names[w.next], w.next)
		w.next++
	}
	w.log()
}

// forget drops the streams that weir no longer has.
func (w *CopyWatch) forget(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.streams, func(name string, _ copies) bool { return !slices.Contains(names, name) })
}

// ask looks at one stream.
func (w *CopyWatch) ask(ctx context.Context, name string, order int) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	s, err := w.JetStream.Stream(ctx, name)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	found := copies{order: order}
	if err == nil {
		found.judge(w.streams[name].missing, s.CachedInfo(), time.Now())
	}
	if len(found.missing) > 0 {
		w.streams[name] = found
	} else {
		delete(w.streams, name)
	}
}

// judge fills in the copies by the information of a stream's leader. was is what the look before found to be missing.
//
// The leader calls a copy current if it has every entry that is stored. A copy of a busy stream is often some entries
// behind, so a copy is certainly missing only if two looks in a row find that its server does not answer the leader, or
// if the copy came no nearer for stuckAfter.
func (c *copies) judge(was map[string]missing, info *jetstream.StreamInfo, now time.Time) {
	c.want = info.Config.Replicas
	if info.Cluster == nil || c.want < 2 {
		return
	}
	c.current = 1 // the leader's
	all := map[string]missing{}
	for _, p := range info.Cluster.Replicas {
		if p.Current && !p.Offline {
			c.current++
			continue
		}
		m, known := was[p.Name]
		answers := !p.Offline && p.Active > 0 && p.Active <= seenWithin // Active is 0 if the leader never heard of it
		if !known || answers && !m.certain && p.Lag < m.lag {
			m.since = now
		}
		if seen := now.Add(-p.Active); !answers && p.Active > 0 && seen.Before(m.since) {
			m.since = seen
		}
		m.certain = m.certain || known && (!answers || now.Sub(m.since) >= stuckAfter)
		m.lag, m.offline = p.Lag, p.Offline
		if !answers { // the leader counts from the beginning if it never heard of the copy
			m.lag = 0
		}
		all[p.Name] = m
	}
	if len(info.Cluster.Replicas)+1 < c.want {
		m, known := was[""]
		if !known {
			m.since = now
		}
		m.certain = known
		all[""] = m
	}
	if c.current < c.want { // a stream that moves to other servers has more copies for a while
		c.missing = all
	}
}

// Count returns how many streams certainly lack a copy.
func (w *CopyWatch) Count() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.streams {
		for _, m := range c.missing {
			if m.certain {
				n++
				break
			}
		}
	}
	return n
}

// Lacking returns the servers that certainly lack copies, by name.
func (w *CopyWatch) Lacking() (all []admin.Lacking) {
	w.mu.Lock()
	defer w.mu.Unlock()
	servers := map[string]*admin.Lacking{}
	names := slices.Collect(maps.Keys(w.streams))
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(w.streams[a].order, w.streams[b].order) })
	for _, name := range names {
		c := w.streams[name]
		for server, m := range c.missing {
			if !m.certain {
				continue
			}
			l, ok := servers[server]
			if !ok {
				l = &admin.Lacking{Server: server, Since: m.since.UTC()}
				servers[server] = l
			}
			if m.since.Before(l.Since) {
				l.Since = m.since.UTC()
			}
			l.Offline = l.Offline || m.offline
			if l.Count++; l.Count <= mostNamed {
				l.Streams = append(l.Streams, admin.StreamCopies{Stream: name, Current: c.current, Copies: c.want, Lag: m.lag})
			}
		}
	}
	for _, server := range slices.Sorted(maps.Keys(servers)) {
		all = append(all, *servers[server])
	}
	return all
}

// log logs which servers begin to lack copies, and which have them all again.
func (w *CopyWatch) log() {
	lacking := map[string]bool{}
	for _, l := range w.Lacking() {
		lacking[l.Server] = true
		if w.told[l.Server] {
			continue
		}
		var streams []string
		for _, c := range l.Streams {
			streams = append(streams, c.Stream)
		}
		w.Log.Warn("a NATS server lacks current copies of streams; if it does not catch up within minutes, stop it, empty its store and start it again",
			"server", l.Server, "streams", strings.Join(streams, " "), "count", l.Count, "since", l.Since, "offline", l.Offline)
	}
	for server := range w.told {
		if !lacking[server] {
			w.Log.Info("a NATS server has current copies of all streams again", "server", server)
		}
	}
	w.told = lacking
}
