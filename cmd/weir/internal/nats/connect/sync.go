package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// SyncRight is the subject on which every nats-server of a cluster says how it syncs. Only users of the system account
// may ask there, and users of an account that imports the subject from it. The setting is nowhere else: neither in the
// server's INFO nor in what JetStream says of an account or a stream.
const SyncRight = "$SYS.REQ.SERVER.PING.JSZ"

// Bounds of the wait for answers.
const (
	syncWait = 2 * time.Second        // for those of all servers
	restWait = 500 * time.Millisecond // for the others after all servers that store weir's streams have answered
)

// ErrOthers says that servers have answered, but none of those that store weir's streams: the user has the right on
// other servers, for example on those to which a leaf node connects.
var ErrOthers = errors.New("the NATS servers that store weir's streams do not say how they sync; others have answered")

// ErrMayNotAsk says that the user may not ask the servers how they sync, or that its account does not import SyncRight.
var ErrMayNotAsk = errors.New("this user may not ask the NATS servers how they sync")

// Syncing says how a nats-server with JetStream brings its writes to disk.
type Syncing struct {
	Server  string // its name
	Version string
	Always  bool          // it syncs every write before it acknowledges it
	Every   time.Duration // if not Always, the time between two syncs
}

// syncAnswer is a server's answer on SyncRight.
type syncAnswer struct {
	Server struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Version string `json:"ver"`
		Cluster string `json:"cluster"`
		Domain  string `json:"domain"`
	} `json:"server"`
	Data struct {
		Disabled bool `json:"disabled"`
		Config   struct {
			SyncAlways   bool          `json:"sync_always"`
			SyncInterval time.Duration `json:"sync_interval"`
		} `json:"config"`
		Meta struct {
			Size int `json:"cluster_size"`
		} `json:"meta_cluster"`
	} `json:"data"`
	Error *struct {
		Description string `json:"description"`
	} `json:"error"`
}

// ServersOf returns the names of the servers that store a stream, nil if that is not known.
func ServersOf(c *jetstream.ClusterInfo) (names []string) {
	if c == nil || c.Leader == "" {
		return nil
	}
	names = []string{c.Leader}
	for _, p := range c.Replicas {
		names = append(names, p.Name)
	}
	return names
}

// AskSyncing asks the servers of a JetStream domain how they sync. own names the servers that store weir's streams; if
// it is empty, the server of the connection stands for it. AskSyncing returns the answers of these servers and of the
// other servers of their cluster, sorted by name. Servers of other clusters answer too: in a supercluster, and beside
// leaf nodes. missing counts the servers in own that have not answered within two seconds, and the servers that have
// answered that they cannot say. The error is ErrMayNotAsk if the user lacks the right, and ErrOthers if only servers
// other than own have answered.
func AskSyncing(
	ctx context.Context, nc *nats.Conn, denied *Denials, domain string, own []string,
) (servers []Syncing, missing int, err error) {
	bounded, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	denied.Forgive(SyncRight)
	asking, done := denied.Tolerate(bounded, SyncRight)
	defer done()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := nc.PublishRequest(SyncRight, inbox, nil); err != nil {
		return nil, 0, err
	}
	if len(own) == 0 {
		own = []string{nc.ConnectedServerName()}
	}
	told := syncAnswers{own: own, byID: map[string]syncAnswer{}}
	for wait := asking; !told.byAllOwn() || len(told.byID) < told.size; {
		msg, err := answers.NextMsgWithContext(wait)
		if errors.Is(err, nats.ErrNoResponders) || errors.Is(context.Cause(asking), nats.ErrPermissionViolation) {
			return nil, 0, ErrMayNotAsk
		}
		if err != nil && ctx.Err() == nil && wait.Err() != nil {
			break
		} else if err != nil {
			return nil, 0, err
		}
		var a syncAnswer
		if err := json.Unmarshal(msg.Data, &a); err != nil {
			return nil, 0, fmt.Errorf("an answer on %s: %w", SyncRight, err)
		}
		if a.Data.Disabled || a.Server.Domain != domain { // it stores nothing of this domain
			continue
		}
		told.size = max(told.size, a.Data.Meta.Size)
		told.byID[a.Server.ID] = a
		if wait == asking && told.byAllOwn() {
			rest, cancel := context.WithTimeout(asking, restWait)
			defer cancel()
			wait = rest
		}
	}
	return told.judge()
}

// syncAnswers are the answers of servers of one JetStream domain.
type syncAnswers struct {
	own  []string // the servers that store weir's streams
	size int      // how many servers can answer, those of other clusters included
	byID map[string]syncAnswer
}

// byAllOwn reports whether all of weir's servers have answered.
func (s *syncAnswers) byAllOwn() bool {
	names := map[string]bool{}
	for _, a := range s.byID {
		names[a.Server.Name] = true
	}
	return !slices.ContainsFunc(s.own, func(name string) bool { return !names[name] })
}

// judge returns the results of AskSyncing.
func (s *syncAnswers) judge() (servers []Syncing, missing int, err error) {
	if len(s.byID) == 0 {
		return nil, 0, fmt.Errorf("no server with JetStream has answered on %s within %s", SyncRight, syncWait)
	}
	without, clusters := map[string]bool{}, map[string]bool{}
	for _, name := range s.own {
		without[name] = true
	}
	for _, a := range s.byID {
		if without[a.Server.Name] && a.Server.Cluster != "" {
			clusters[a.Server.Cluster] = true
		}
	}
	for _, a := range s.byID {
		switch own := slices.Contains(s.own, a.Server.Name); {
		case !own && !clusters[a.Server.Cluster]:
		case a.Error != nil:
			without[a.Server.Name] = true
			err = fmt.Errorf("server %s: %s", a.Server.Name, a.Error.Description)
		default:
			delete(without, a.Server.Name)
			c := a.Data.Config
			servers = append(servers, Syncing{a.Server.Name, a.Server.Version, c.SyncAlways, c.SyncInterval})
		}
	}
	if len(servers) > 0 {
		slices.SortFunc(servers, func(a, b Syncing) int { return strings.Compare(a.Server, b.Server) })
		return servers, len(without), nil
	}
	if err == nil {
		err = ErrOthers
	}
	return nil, 0, err
}

// release is a version of nats-server: major, minor, patch.
type release [3]int

// releaseOf reads a version such as 2.15.2 or 2.16.0-RC.1. A missing patch is 0.
func releaseOf(version string) (r release, ok bool) {
	n, _ := fmt.Sscanf(version, "%d.%d.%d", &r[0], &r[1], &r[2])
	return r, n >= 2
}

func (r release) before(other release) bool { return slices.Compare(r[:], other[:]) < 0 }

// SyncedServer is the first version of nats-server for which weir counts on sync_interval: always.
const SyncedServer = "2.15.2"

// What a power cut may lose on a server that has sync_interval: always. Both times the server puts a shorter file in
// place of another, and syncs neither the file nor its directory. nats-server#8475 mended the first in 2.14.6, #8629
// the second in 2.14.8 and 2.15.1. On ext4 the new file is on disk before the rename is.
const (
	lossByDeletes = "when messages were deleted it rewrites the rest of their file without a sync, and on file systems other than ext4 a power cut may lose that rest, however long ago it was acknowledged"
	lossByLogs    = "when it shortens the log of a replicated stream, or purges a part of a stream, it rewrites the file without a sync, and on file systems other than ext4 a power cut may lose what the file kept"
	noKnownLoss   = "no loss of what it has synced is known of this version, but weir is tested with " + SyncedServer
)

// Untested reports whether weir was not tested with a version of nats-server or an earlier one, and knows of no loss on
// it in a power cut.
func Untested(version string) bool {
	_, ok := releaseOf(version)
	return !ok || KnownLosses(version) == noKnownLoss
}

// KnownLosses returns which losses in a power cut are known of a version of nats-server that syncs every write. It
// returns "" from SyncedServer on, and for a version that it cannot read.
func KnownLosses(version string) string {
	r, ok := releaseOf(version)
	switch {
	case !ok || !r.before(release{2, 15, 2}):
		return ""
	case r.before(release{2, 14, 6}):
		return lossByDeletes + "; " + lossByLogs
	case r.before(release{2, 14, 8}), r == release{2, 15, 0}:
		return lossByLogs
	}
	return noKnownLoss
}

// syncs warns if the servers sync every write, or may do so, and have a version on which that is not enough. It only
// notes a version of which no loss is known. Without an answer of the servers that store weir's streams it knows only
// the version of the server that weir is connected to. The server inside another weir is that weir's.
func (c *Check) syncs(ctx context.Context, domain string) {
	if c.Inside {
		return
	}
	if c.mayAskSyncing {
		if servers, _, err := AskSyncing(ctx, c.Conn, c.Denied, domain, c.own(ctx)); err == nil {
			for _, s := range servers {
				if s.Always {
					c.tellLosses(ctx, "a nats-server has sync_interval: always, on which weir counts from version "+
						SyncedServer+" on: upgrade it", s.Version, "server", s.Server)
				}
			}
			return
		}
	}
	c.tellLosses(ctx, "if the nats-servers have sync_interval: always: weir counts on it from version "+
		SyncedServer+" on: upgrade them", c.Conn.ConnectedServerVersion())
}

// own returns the servers that store weir's streams, nil if weir has none yet.
func (c *Check) own(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	s, err := c.JetStream.Stream(ctx, "KV_"+ConfigBucket)
	if err != nil {
		return nil
	}
	return ServersOf(s.CachedInfo().Cluster)
}

// tellLosses logs what is known of a server's version, if anything is.
func (c *Check) tellLosses(ctx context.Context, what, version string, attrs ...any) {
	losses, level := KnownLosses(version), slog.LevelWarn
	if losses == noKnownLoss {
		level = slog.LevelInfo
	}
	if losses != "" {
		c.Log.Log(ctx, level, what, append(attrs, "version", version, "known", losses)...)
	}
}
