package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Times of a nodeWatch. An election takes four to nine seconds. A node reports that it has lost the other nodes only
// ten seconds after the loss.
const (
	nodeAsk    = 2 * time.Second // the time between two requests, and the longest wait for an answer
	nodeSilent = 12 * time.Second
)

// nodeWatch connects to another node when JetStream has not answered through the present node for too long. The present
// node may be cut off from its cluster while its clients are still connected. Then nats.go sees no failure, and weir
// would accept and call nothing until the node is back.
type nodeWatch struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	silent time.Duration // the time without an answer after which another node is tried
	log    *slog.Logger
}

// run asks JetStream every nodeAsk until ctx ends. It reconnects to another node when JetStream has not answered for
// w.silent.
func (w *nodeWatch) run(ctx context.Context) error {
	tick := time.NewTicker(min(nodeAsk, w.silent/4))
	defer tick.Stop()
	for answered := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		err := w.ask(ctx)
		switch {
		case err == nil, !w.nc.IsConnected(), len(w.nc.Servers()) < 2, ctx.Err() != nil:
			// JetStream has answered, or there is nothing to do: nats.go is reconnecting already, or there is no other node.
			answered = time.Now()
		case time.Since(answered) > w.silent:
			w.log.Warn("JetStream does not answer on this server, which may be cut off from its cluster; trying another server",
				"wait", time.Since(answered).Round(time.Second), "err", err)
			if err := w.nc.ForceReconnect(); err != nil {
				w.log.Warn("could not disconnect from the server", "err", err)
			}
			answered = time.Now()
		}
	}
}

// ask makes a request that only the cluster's leader answers. A node that is cut off cannot reach the leader.
func (w *nodeWatch) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodeAsk)
	defer cancel()
	_, err := w.js.AccountInfo(ctx)
	return err
}
