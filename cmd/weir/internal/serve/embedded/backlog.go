package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// backlog bounds the bytes that wait in memory for all clients together. When the bytes exceed the bound, backlog
// disconnects clients, those with the most waiting bytes first. The server itself bounds only the bytes of each client
// alone. A disconnected NATS client reconnects and continues.
type backlog struct {
	ns    *server.Server
	most  int64 // bytes that may wait for all clients together
	spare []*nats.Conn
	log   *slog.Logger

	closing []closingClient // disconnected clients whose memory may not be free yet
	waiting int64           // bytes waiting at the last look
	sent    int64           // bytes that the server had sent to all clients up to that look: waiting can have grown by at most the bytes sent since
}

// closingClient is the memory of a disconnected client. The server frees that memory when its last write to the client
// has ended.
type closingClient struct {
	bytes int64
	until time.Time
}

// Bounds of looking.
const (
	backlogLook   = 20 * time.Millisecond
	lookShare     = 4                // while little waits, the rest after a look is this many times as long as the look, because a look reads all clients
	writeDeadline = 5 * time.Second  // how long a client may read nothing before the server gives up a write to it
	signIn        = 10 * time.Second // within which a client must sign in; its machine may be busy
)

// BoundBacklog keeps the bytes that wait for all clients together within most, until ctx ends. It never disconnects the
// connections in spare and the gate's connection.
func (s *Server) BoundBacklog(ctx context.Context, most int64, log *slog.Logger, spare ...*nats.Conn) error {
	b := backlog{ns: s.ns, most: most, spare: spare, log: log.With("component", "nats-server")}
	if s.gate != nil {
		b.spare = append(b.spare, s.gate)
	}
	for {
		begin := time.Now()
		if b.mayBeMuch() {
			b.look(begin)
		}
		select {
		case <-time.After(b.rest(time.Since(begin))):
		case <-ctx.Done():
			return nil
		}
	}
}

// rest returns how long to wait after a look that took that long. If more than half of the bound is in use, the rest is
// short: on a busy machine a look takes long, and clients could fill the remaining room during a long rest.
func (b *backlog) rest(look time.Duration) time.Duration {
	if b.waiting > b.most/2 {
		return backlogLook
	}
	return max(backlogLook, lookShare*look)
}

// mayBeMuch reports whether more than half of the bound may be in use now. It costs the same for any number of clients;
// a look costs more for more clients.
func (b *backlog) mayBeMuch() bool {
	sent, err := b.sentBytes()
	if err != nil || b.waiting+sent-b.sent <= b.most/2 {
		return false
	}
	b.sent = sent
	return true
}

// sentBytes returns the bytes that the server has sent to all clients since it started. Varz reports them too, but
// reads the kernel's files about the process each time. That was half of the work of an idle weir.
func (b *backlog) sentBytes() (sum int64, err error) {
	// IncludeUnused, because the bytes sent to clients that have disconnected must still count.
	all, err := b.ns.AccountStatz(&server.AccountStatzOptions{IncludeUnused: true})
	if err != nil {
		return 0, fmt.Errorf("count what was sent: %w", err)
	}
	for _, account := range all.Accounts {
		sum += account.Sent.Bytes
	}
	return sum, nil
}

func (b *backlog) look(now time.Time) {
	conns, err := b.ns.Connz(&server.ConnzOptions{Sort: server.ByPending, Limit: b.ns.NumClients() + 1})
	if err != nil {
		b.log.Warn("cannot read how much waits for slow clients", "err", err)
		return
	}
	b.waiting = 0
	b.closing = slices.DeleteFunc(b.closing, func(c closingClient) bool { return now.After(c.until) })
	for _, c := range b.closing {
		b.waiting += c.bytes
	}
	for _, c := range conns.Conns {
		b.waiting += int64(c.Pending)
	}
	if b.waiting <= b.most {
		return
	}
	spared := map[uint64]bool{}
	for _, nc := range b.spare {
		if id, err := nc.GetClientID(); err == nil {
			spared[id] = true
		}
	}
	waiting, cut, bytes := b.waiting, 0, int64(0)
	for _, c := range conns.Conns { // sorted: the client with the most waiting bytes first
		if waiting <= b.most/2 || int64(c.Pending)*int64(len(conns.Conns)) <= b.most {
			break // a client within its share is never disconnected
		}
		if spared[c.Cid] || b.ns.DisconnectClientByID(c.Cid) != nil {
			continue
		}
		waiting -= int64(c.Pending)
		bytes += int64(c.Pending)
		cut++
		b.closing = append(b.closing, closingClient{int64(c.Pending), now.Add(writeDeadline)})
	}
	if cut > 0 {
		b.log.Warn("disconnected clients that read too slowly: the messages waiting for them did not fit into memory; let them read faster or less, or raise WEIR_MEMORY",
			"clients", cut, "bytes", bytes, "waiting_bytes", b.waiting, "most_bytes", b.most)
	}
}
