package queue

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// Partition is one stream of an api's queue: the jobs of the keys that hash to it. Its intake, its reader and its
// sweeper work in parallel, and share its contents.
type Partition struct {
	queue       *Queue
	source      source
	contents    *contents
	finishedIDs finishedIDs // the ids of finished jobs that the stream may have forgotten
	intake      *intake
	sweeper     *sweeper
	// reconnects returns how often the connection was lost and came back.
	reconnects func() uint64
	watch      time.Duration // how often the reader is checked for a stall
	// removalWatch is how often the owner looks for messages that were deleted by hand.
	removalWatch time.Duration
	heartbeat    time.Duration // how often the server sends the reader a heartbeat

	larger chan struct{} // has a value when a message may be larger than the reader allows
	// lookNow has a value when messages may have been deleted from the stream by hand.
	lookNow chan struct{}
}

func newPartition(q *Queue, nc *nats.Conn, opened jetstream.Stream, number int) (*Partition, error) {
	x, err := stream.NewExchange(nc, stream.DiskOf(q.js))
	if err != nil {
		return nil, err
	}
	reconnects := func() uint64 { return nc.Stats().Reconnects }
	p := &Partition{
		queue:    q,
		source:   source{api: q.api, number: number, name: StreamName(q.api, number), nc: nc, js: q.js, stream: opened},
		contents: newContents(q.holdings, reconnects), reconnects: reconnects,
		watch: readWatch, removalWatch: removalWatch, heartbeat: readHeartbeat,
		larger: make(chan struct{}, 1), lookNow: make(chan struct{}, 1),
	}
	p.intake = newIntake(p, x)
	p.sweeper, err = newSweeper(&p.source, p.contents, q.log)
	return p, err
}

// newIntake returns the intake of a partition, which stores by x.
func newIntake(p *Partition, x *stream.Exchange) *intake {
	return &intake{
		queue: p.queue, source: &p.source, contents: p.contents, finishedIDs: &p.finishedIDs, x: x,
		wake: make(chan struct{}, 1),
	}
}

// Name returns the name of the partition's stream.
func (p *Partition) Name() string { return p.source.name }

// Number returns the partition's place in its queue.
func (p *Partition) Number() int { return p.source.number }
