package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"weir/bucket/lease"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/restoreguard"
)

// How long a move waits for changes to become visible.
const (
	pingWait    = time.Second
	settleWait  = 2 * time.Minute  // until every replica has a copy
	vanishWait  = 15 * time.Second // until the remains of an interrupted copy have gone
	settlePoll  = 100 * time.Millisecond
	leaseSilent = lease.Term + time.Second // the time after which a lease that was not renewed has no owner
)

// Streams returns the present state of weir's streams on a server, sorted by name.
func Streams(ctx context.Context, js jetstream.JetStream) ([]*jetstream.StreamInfo, error) {
	lister := js.ListStreams(ctx)
	var all []*jetstream.StreamInfo
	for info := range lister.Info() {
		name := info.Config.Name
		if (strings.HasPrefix(name, "WEIR_") || strings.HasPrefix(name, "KV_weir_")) && name != "KV_"+noteBucket {
			all = append(all, info)
		}
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	slices.SortFunc(all, func(a, b *jetstream.StreamInfo) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return all, nil
}

// refuseCopied fails if the data directory is not the one in which weir last started. Jobs in a backup may have been
// called since the backup was made, and the target would not know these calls.
func refuseCopied(f Options) error {
	if f.Abandon {
		return nil
	}
	found, _, err := restoreguard.ExamineDirectory(f.From)
	if err != nil || found == nil {
		return err
	}
	return cli.Refused(fmt.Errorf("%s: start weir there first, with --restored if it was put back from a backup, or with --moved if it is that of the weir which was stopped; stop it, and move then",
		found.What))
}

// refuseRunning fails if a weir is connected to the server, or dispatches on it without an answer.
func refuseRunning(ctx context.Context, c *connect.Connection) error {
	inbox := c.Conn.NewRespInbox()
	sub, err := c.Conn.SubscribeSync(inbox)
	if err != nil {
		return c.Explain(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	ping, err := micro.ControlSubject(micro.PingVerb, "", "")
	if err != nil {
		panic("the subject of pings: " + err.Error())
	}
	if err := c.Conn.PublishRequest(ping, inbox, nil); err != nil {
		return c.Explain(err)
	}
	for {
		msg, err := sub.NextMsg(pingWait)
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout):
			return refuseLeased(ctx, c)
		case err != nil:
			return c.Explain(err)
		case strings.Contains(string(msg.Data), `"name":"weir`):
			return cli.Refused(fmt.Errorf("a weir is running on %s: stop it first (until it runs again, producers must retry their submissions)", c.At))
		}
	}
}

// refuseLeased fails if a lease is renewed while refuseLeased watches. Then a replica dispatches although it does not
// answer.
func refuseLeased(ctx context.Context, c *connect.Connection) error {
	last := func() (uint64, error) {
		s, err := c.JetStream.Stream(ctx, "KV_"+connect.LeasesBucket)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return 0, nil
		} else if err != nil {
			return 0, c.Explain(err)
		}
		if s.CachedInfo().State.Msgs == 0 {
			return 0, nil
		}
		return s.CachedInfo().State.LastSeq, nil
	}
	before, err := last()
	if err != nil || before == 0 {
		return err
	}
	if kv, err := c.JetStream.KeyValue(ctx, connect.LeasesBucket); err == nil {
		if _, err := kv.Keys(ctx); errors.Is(err, jetstream.ErrNoKeysFound) {
			return nil
		}
	}
	for start := time.Now(); time.Since(start) < leaseSilent; {
		if !stream.Sleep(ctx, settlePoll) {
			return context.Cause(ctx)
		}
		now, err := last()
		if err != nil {
			return err
		}
		if now != before {
			return cli.Refused(fmt.Errorf("a weir dispatches on %s: stop it first", c.At))
		}
	}
	return nil
}

// differs says how a copy differs from its original; it returns "" if they are the same. In a stream with a maximum
// age, the copy may lack the oldest messages, because they have expired meanwhile.
func differs(was, is *jetstream.StreamInfo) string {
	a, b := was.State, is.State
	if a.LastSeq != b.LastSeq {
		return fmt.Sprintf("its last sequence is %d, not %d", b.LastSeq, a.LastSeq)
	}
	if a.Msgs == b.Msgs && (a.FirstSeq == b.FirstSeq || a.Msgs == 0) {
		return ""
	}
	if was.Config.MaxAge > 0 && b.FirstSeq >= a.FirstSeq && b.Msgs <= a.Msgs && a.Msgs-b.Msgs <= b.FirstSeq-a.FirstSeq {
		return ""
	}
	return fmt.Sprintf("it has %d messages from %d on, not %d from %d on", b.Msgs, b.FirstSeq, a.Msgs, a.FirstSeq)
}

// awaitCopies waits until a stream has a leader, and every replica has the whole stream.
func awaitCopies(ctx context.Context, c *connect.Connection, name string) (*jetstream.StreamInfo, error) {
	for start := time.Now(); ; {
		why := ""
		s, err := c.JetStream.Stream(ctx, name)
		if err != nil {
			why = err.Error()
		} else if info := s.CachedInfo(); info.Cluster == nil || info.Config.Replicas == 1 {
			return info, nil
		} else {
			current := 1 // counts the leader
			for _, r := range info.Cluster.Replicas {
				if r.Current && !r.Offline {
					current++
				}
			}
			if info.Cluster.Leader != "" && current >= info.Config.Replicas {
				return info, nil
			}
			why = fmt.Sprintf("%d of %d replicas have all of it", current, info.Config.Replicas)
		}
		if time.Since(start) > settleWait {
			return nil, fmt.Errorf("%s on %s: %s after %s: run the same command again", name, c.At, why, cli.Brief(settleWait))
		}
		if !stream.Sleep(ctx, settlePoll) {
			return nil, context.Cause(ctx)
		}
	}
}
