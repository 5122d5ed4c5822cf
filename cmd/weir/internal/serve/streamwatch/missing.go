package streamwatch

import (
	"cmp"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of judging a copy.
const (
	seenWithin = 10 * time.Second // a server that its leader heard of within this time has a copy; as in nats-server
	stuckAfter = 30 * time.Second // how long a copy may be behind
	risesFor   = 2 * time.Minute  // how long a copy that is near may come no nearer
)

// copies is what the looks at a stream have found.
type copies struct {
	order         int       // the stream's place in the list
	asked         time.Time // when the last look at the stream ended
	gone          bool      // at the last look the server had no such stream
	last, msgs    uint64    // the stream's last sequence, and how many messages it had
	known         bool      // last and msgs are known
	current, want int
	behind        map[string]missing // by server, "" if the cluster has none: the copies that lack entries
	without       leaderless
}

// leaderless says since when looks at a stream have found no leader. The zero value is a stream with a leader.
type leaderless struct {
	since   time.Time
	certain bool // at least two looks found none
	broken  bool // the last look failed, so that the next one begins anew: it may find another election
}

// missing is a copy that lacks entries.
type missing struct {
	peer, name string // the server's id and name
	since      time.Time
	fell       time.Time // when lag last fell, or did not rise though the stream grew
	lag        uint64    // by how many entries the copy is behind, 0 if its server does not answer the leader
	offline    bool
	away       bool // the server does not answer the leader
	near       bool // the copy counts as current
	certain    bool // the copy is reported; stays true until the copy is current or near
}

// lack reports whether the stream has no leader, or fewer copies than it is configured to have.
func (c *copies) lack() bool { return c.current < c.want || !c.without.since.IsZero() }

// judge continues c with the information of the stream's leader.
func (c *copies) judge(info *jetstream.StreamInfo, now time.Time) {
	was, grown := c.behind, uint64(0)
	if last := info.State.LastSeq; c.known && last > c.last {
		grown = last - c.last
	}
	if msgs := info.State.Msgs; c.known && msgs < c.msgs { // deletions are entries too
		grown = max(grown, c.msgs-msgs)
	}
	c.last, c.msgs, c.known, c.without, c.behind = info.State.LastSeq, info.State.Msgs, true, leaderless{}, map[string]missing{}
	c.want = info.Config.Replicas
	c.current = 1 // the leader's
	if info.Cluster == nil || c.want < 2 {
		c.current = c.want
		return
	}
	for _, p := range info.Cluster.Replicas {
		server := cmp.Or(p.Peer, p.Name)
		if p.Current && !p.Offline {
			c.current++
			continue
		}
		m := was[server].next(p, grown, now)
		if m.near {
			c.current++
		}
		c.behind[server] = m
	}
	if len(info.Cluster.Replicas)+1 < c.want && info.Cluster.Desired == nil { // Desired: servers are about to join
		m, known := was[""]
		if !known {
			m.since = now
		}
		m.certain = known
		c.behind[""] = m
	}
	if c.current >= c.want { // a stream that moves to other servers has more copies for a while
		for server, m := range c.behind {
			if !m.near {
				delete(c.behind, server)
			}
		}
	}
}

// next continues m, which is the zero value at first, with what the leader says of the copy. The stream has grown by so
// many messages, or has lost so many, since the look before.
//
// Active is 0 if the leader never heard of the copy, and also if the copy answered after the leader had read the clock
// for this answer, as often on a busy stream. Of a copy that it never heard of, the leader counts all entries as
// lacking. So a copy that lacks few entries has answered.
//
// The leader calls a copy current if it has every entry that is stored. A copy of a busy stream is often some entries
// behind. It is near if it lacks no more entries than came since the look before. A copy that is stuck may look near too
// while the stream grows fast, because one entry may hold many messages. But its lag only rises. So a copy whose lag
// rose at each look for risesFor is not near, and a copy that was reported is near only at a look that finds no larger
// lag.
//
// A copy is certainly missing if two looks in a row find that its server does not answer the leader, or if the copy is
// behind, and not near, for stuckAfter.
func (m missing) next(p *jetstream.PeerInfo, grown uint64, now time.Time) missing {
	known, wasAway, wasNear := !m.since.IsZero(), m.away, m.near
	heard := p.Active > 0 && p.Active <= seenWithin || p.Active == 0 && p.Lag > 0 && p.Lag <= grown
	answers := heard && !p.Offline
	fell := answers && (!known || wasAway || p.Lag < m.lag || p.Lag == m.lag && grown > 0)
	if fell {
		m.fell = now
	}
	m.near = answers && p.Lag <= grown && (fell || !m.certain) && now.Sub(m.fell) < risesFor
	if !known || m.near || wasNear {
		m.since = now
	}
	if seen := now.Add(-p.Active); !answers && p.Active > 0 && seen.Before(m.since) {
		m.since = seen
	}
	late := known && (wasAway && !answers || now.Sub(m.since) >= stuckAfter)
	m.certain = !m.near && (m.certain || late)
	m.peer, m.name, m.offline, m.away, m.lag = p.Peer, p.Name, p.Offline, !answers, p.Lag
	if m.away { // the leader counts from the beginning if it never heard of the copy
		m.lag = 0
	}
	return m
}
