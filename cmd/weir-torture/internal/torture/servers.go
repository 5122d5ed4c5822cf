package torture

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// servers knows where NATS is, for producers, judges and commands.
type servers struct {
	o      *plan.Options
	record *record
	urls   []string // of the server, or of all nodes
}

// dir returns the store of the single server, which is inside weir or beside it.
func (s *servers) dir() string { return filepath.Join(s.o.Dir, "data") }

// commandEnv returns the environment in which a command of weir finds the servers.
func (s *servers) commandEnv() []string {
	return []string{"WEIR_NATS_URL=" + strings.Join(s.urls, ","), "WEIR_DATA_DIR=" + s.dir()}
}

// connect connects with the judges' rights. The caller must close the connection.
func (s *servers) connect() (*nats.Conn, jetstream.JetStream, error) { return s.open(nil) }

// connected returns a connection that reconnects whenever a server is back. The caller must close it.
func (s *servers) connected() (*nats.Conn, jetstream.JetStream, error) {
	return s.open([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.RetryOnFailedConnect(true), nats.ErrorHandler(nothingNew)},
		jetstream.WithDefaultTimeout(2*time.Second))
}

func (s *servers) open(options []nats.Option, how ...jetstream.JetStreamOpt) (*nats.Conn, jetstream.JetStream, error) {
	as, err := s.asOperator(options...)
	if err != nil {
		return nil, nil, err
	}
	nc, err := nats.Connect(strings.Join(s.urls, ","), as...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the server: %w", err)
	}
	js, err := jetstream.New(nc, how...)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("JetStream: %w", err)
	}
	return nc, js, nil
}

// drain waits until nothing is queued. If the queue does not shrink for stuckAfter, it returns how many jobs are left.
func (s *servers) drain(ctx context.Context) (waiting int, err error) {
	nc, js, err := s.connect()
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	s.record.talk("no more faults; what is queued is called")
	least, since := math.MaxInt, time.Now()
	for {
		waiting, err = queued(ctx, js)
		if err == nil && waiting < least {
			least, since = waiting, time.Now()
		}
		switch {
		case err == nil && waiting == 0:
			return 0, nil
		case time.Since(since) > stuckAfter:
			return waiting, err
		case !stream.Sleep(ctx, 200*time.Millisecond):
			return waiting, context.Cause(ctx)
		}
	}
}

// queued returns how many jobs are queued.
func queued(ctx context.Context, js jetstream.JetStream) (jobs int, err error) {
	depths, err := queue.Depths(ctx, js, plan.APIName)
	for _, d := range depths {
		jobs += int(d.Jobs)
	}
	return jobs, err
}
