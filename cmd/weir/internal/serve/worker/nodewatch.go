package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Times of a nodeWatch. An election takes four to nine seconds. A node reports only after ten seconds that it has lost
// the others.
const (
	nodeAsk    = 2 * time.Second // between two questions, and the wait for an answer
	nodeSilent = 12 * time.Second
)

// nodeWatch leaves a cluster's node through which JetStream has not answered for too long. Such a node may be cut off
// from the others while its clients are connected: nats.go sees no failure, and weir would accept and call nothing
// until the node is back.
type nodeWatch struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	silent time.Duration // time without an answer before another node is tried
	log    *slog.Logger
}

// run asks until ctx ends.
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
			answered = time.Now() // no silence: nats.go already looks for a node, or there is no other
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

// ask requests an answer of the cluster's leader, which a node that is cut off does not reach.
func (w *nodeWatch) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodeAsk)
	defer cancel()
	_, err := w.js.AccountInfo(ctx)
	return err
}
