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

	"weir/bucket/stream"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a CopyWatch.
const (
	copiesEvery = 10 * time.Second
	copiesWait  = 8 * time.Second // bounds how long one look may take
	leaderWait  = 2 * time.Second // how long a look waits for the leader of one stream
	mostAsked   = 64              // the most streams that one look asks for
	mostNamed   = 16              // the most streams that Lacking names for each server
	mostServers = 256             // the most servers whose names a CopyWatch remembers
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
	told []admin.Lacking // what the log said is lacking

	mu      sync.Mutex // guards the fields below
	streams map[string]copies
	servers map[string]string // names of servers by their ids in Raft groups
}

// NewCopyWatch returns a CopyWatch that has not looked yet.
func NewCopyWatch(o CopyOptions) *CopyWatch {
	o.Log = o.Log.With("component", "streams")
	return &CopyWatch{CopyOptions: o, streams: map[string]copies{}, servers: map[string]string{}}
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

// Look asks the leaders of some streams about the copies: first for the streams that lack something, for at most half
// of the look, and then for the next ones in the list. If no leader answers for a stream, Look keeps what it knew.
func (w *CopyWatch) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, copiesWait)
	defer cancel()
	begun, names := time.Now(), w.Streams()
	order := make(map[string]int, len(names))
	for i, name := range names {
		order[name] = i
	}
	asked := map[string]bool{}
	for _, name := range w.lackingStreams(order) {
		if len(asked) == mostAsked/2 || time.Since(begun) > copiesWait/2 {
			break
		}
		asked[name] = true
		w.ask(ctx, name, order[name])
	}
	for range min(len(names), mostAsked-len(asked)) {
		if ctx.Err() != nil {
			break
		}
		w.next %= len(names)
		if name := names[w.next]; !asked[name] {
			w.ask(ctx, name, w.next)
		}
		w.next++
	}
	w.log()
}

// lackingStreams forgets the streams that weir no longer has. It returns those that lack something, and those that have
// waited longest for a look first.
func (w *CopyWatch) lackingStreams(order map[string]int) (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, c := range w.streams {
		if _, there := order[name]; !there {
			delete(w.streams, name)
		} else if c.lack() {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(w.streams[a].asked.Compare(w.streams[b].asked), cmp.Compare(order[a], order[b]))
	})
	return names
}

// ask looks at one stream.
func (w *CopyWatch) ask(look context.Context, name string, order int) {
	ctx, cancel := context.WithTimeout(look, leaderWait)
	defer cancel()
	s, err := w.JetStream.Stream(ctx, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	c, known := w.streams[name]
	wasGone := c.gone
	c.order, c.asked, c.gone = order, time.Now(), false
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound): // or a server that lacks the stream answers in the leader's place
		if wasGone || !known {
			delete(w.streams, name)
			return
		}
		c.gone = true
	case noLeader(err):
		if c.without.broken {
			c.without = leaderless{}
		}
		c.without.certain = !c.without.since.IsZero()
		if !c.without.certain {
			c.without.since = c.asked
		}
	case err != nil && look.Err() == nil:
		c.without.broken = !c.without.since.IsZero()
	case err == nil:
		c.judge(s.CachedInfo(), c.asked)
		w.remember(s.CachedInfo().Cluster)
	}
	w.streams[name] = c
}

// codeOffline is the error code of a server that says that all servers of a stream are away.
const codeOffline = 10118

// noLeader reports whether an error says that a stream has no leader.
func noLeader(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, stream.ErrNoLeader) || errors.As(err, &api) && api.ErrorCode == codeOffline
}

// unknownName is how nats-server begins the name of a server that it has not heard of since it started.
const unknownName = "Server name unknown"

// remember notes the names of a stream's servers, because a server may not know the others' names after its restart.
func (w *CopyWatch) remember(c *jetstream.ClusterInfo) {
	if c == nil {
		return
	}
	for _, p := range c.Replicas {
		if p.Peer == "" || strings.HasPrefix(p.Name, unknownName) {
			continue
		}
		if _, known := w.servers[p.Peer]; known || len(w.servers) < mostServers {
			w.servers[p.Peer] = p.Name
		}
	}
}

// Count returns how many streams have certainly lacked a copy, or a leader, for admin.CatchesUp.
func (w *CopyWatch) Count() int { return w.countBefore(time.Now().Add(-admin.CatchesUp)) }

// countBefore returns how many streams certainly lack a copy, or a leader, since a time or longer.
func (w *CopyWatch) countBefore(at time.Time) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.streams {
		long := c.without.certain && !c.without.broken && !c.without.since.After(at)
		for _, m := range c.behind {
			long = long || m.certain && !m.since.After(at)
		}
		if long {
			n++
		}
	}
	return n
}

// Lacking returns the streams that certainly have no leader, and the servers that certainly lack copies, by their ids.
func (w *CopyWatch) Lacking() (all []admin.Lacking) {
	w.mu.Lock()
	defer w.mu.Unlock()
	without, servers := admin.Lacking{Leaderless: true}, map[string]*admin.Lacking{}
	var names []string
	for name, c := range w.streams {
		if c.lack() {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(w.streams[a].order, w.streams[b].order) })
	for _, name := range names {
		c := w.streams[name]
		if c.without.certain {
			note(&without, c.without.since, admin.StreamCopies{Stream: name})
		}
		for server, m := range c.behind {
			if !m.certain {
				continue
			}
			l, ok := servers[server]
			if !ok {
				l = &admin.Lacking{Server: w.nameOf(m), Peer: m.peer}
				servers[server] = l
			}
			l.Offline = l.Offline || m.offline
			l.Others = l.Others || c.current < c.want-1
			if m.lag > 0 {
				l.Behind++
			}
			note(l, m.since, admin.StreamCopies{Stream: name, Current: c.current, Copies: c.want, Lag: m.lag})
		}
	}
	if without.Count > 0 {
		all = append(all, without)
	}
	for _, server := range slices.Sorted(maps.Keys(servers)) {
		all = append(all, *servers[server])
	}
	return all
}

// note adds a stream to a finding.
func note(l *admin.Lacking, since time.Time, of admin.StreamCopies) {
	if l.Count == 0 || since.Before(l.Since) {
		l.Since = since.UTC()
	}
	if l.Count++; l.Count <= mostNamed {
		l.Streams = append(l.Streams, of)
	}
}

// nameOf returns the name of a server that lacks a copy, "" if the name is not known.
func (w *CopyWatch) nameOf(m missing) string {
	if name, known := w.servers[m.peer]; known {
		return name
	}
	if strings.HasPrefix(m.name, unknownName) {
		return ""
	}
	return m.name
}

// log logs what begins to be lacking, and what is lacking no more. It leaves it to `weir status` to say what to do about
// a server, because that depends on what all servers lack.
func (w *CopyWatch) log() {
	lacking := w.Lacking()
	for _, l := range lacking {
		if slices.ContainsFunc(w.told, l.Same) {
			continue
		}
		what := "a NATS server lacks current copies of streams: weir status says what to do"
		switch {
		case l.Leaderless:
			what = "streams have no leader: start the NATS servers that do not run, and mend the connections between them"
		case l.Server == "" && l.Peer == "":
			what = "the NATS cluster has no server for copies of streams: weir status says what to do"
		}
		var streams []string
		for _, c := range l.Streams {
			streams = append(streams, c.Stream)
		}
		w.Log.Warn(what, "server", cmp.Or(l.Server, l.Peer), "streams", strings.Join(streams, " "), "count", l.Count,
			"since", l.Since, "offline", l.Offline)
	}
	for _, l := range w.told {
		if slices.ContainsFunc(lacking, l.Same) {
			continue
		}
		switch {
		case l.Leaderless:
			w.Log.Info("no stream lacks a leader any more")
		case l.Server == "" && l.Peer == "":
			w.Log.Info("the NATS cluster lacks no server for a copy any more")
		default:
			w.Log.Info("a NATS server lacks no current copies any more; until its own /healthz says ok it may still be catching up",
				"server", cmp.Or(l.Server, l.Peer))
		}
	}
	w.told = lacking
}
