package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lagging stands for a replica that has just come: what is read of a stream is read of a copy that is only being made.
type lagging struct{ jetstream.JetStream }

type laggingStream struct {
	jetstream.Stream
	js jetstream.JetStream
}

func (l lagging) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := l.JetStream.Stream(ctx, name)
	return laggingStream{s, l.JetStream}, err
}

func (s laggingStream) OrderedConsumer(ctx context.Context, cfg jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	copied, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "COPY", Mirror: &jetstream.StreamSource{Name: s.CachedInfo().Config.Name}, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return nil, err
	}
	return copied.OrderedConsumer(ctx, cfg)
}

// TestReplicaThatLags: who reads a stream is given all that its leader holds, though the replica that delivers it has not got
// it yet, and does not wait for what has been deleted.
func TestReplicaThatLags(t *testing.T) {
	p := newTestPartition(t)
	p.publishJobs(t, 0, 40)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := 0
	if err := Waiting(ctx, lagging{p.queue.js}, "pay", "", func(string, nats.Header) { found++ }); err != nil {
		t.Fatal(err)
	}
	if found != 40 {
		t.Errorf("%d of 40 waiting jobs were found", found)
	}
	source, err := p.queue.js.Stream(ctx, p.name)
	if err != nil {
		t.Fatal(err)
	}
	last, err := stream.LastOf(ctx, p.nc, p.name, queueSubject("pay", 0, kindJob, "*"))
	if err != nil || last != 40 {
		t.Fatalf("the last job is at %d, %v", last, err)
	}
	read := 0
	err = stream.ReadUntil(ctx, stream.Until{Conn: p.nc, Stream: source, Last: last, From: jetstream.OrderedConsumerConfig{FilterSubjects: []string{
		queueSubject("pay", 0, kindJob, "k1"), queueSubject("pay", 0, kindJob, "k4"),
	}}}, func(jetstream.Msg, *jetstream.MsgMetadata) error {
		if read++; read == 1 {
			for seq := uint64(30); seq <= 40; seq++ {
				if err := source.DeleteMsg(ctx, seq); err != nil {
					return fmt.Errorf("%d: %w", seq, err)
				}
			}
		}
		return nil
	})
	if err != nil || read < 9 || read > 12 {
		t.Errorf("read %d jobs, %v", read, err)
	}
}

// stuckStream stands for a replica that does not catch up: the first consumer is given nothing.
type stuckStream struct {
	jetstream.Stream
	stuck jetstream.Stream
	made  *int
}

func (s stuckStream) OrderedConsumer(ctx context.Context, cfg jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	if *s.made++; *s.made == 1 {
		return s.stuck.OrderedConsumer(ctx, cfg)
	}
	return s.Stream.OrderedConsumer(ctx, cfg)
}

// TestReplicaThatIsStuck: where a replica gives nothing of what the leader holds, another one is read.
func TestReplicaThatIsStuck(t *testing.T) {
	p := newTestPartition(t)
	p.publishJobs(t, 0, 40)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	source, err := p.queue.js.Stream(ctx, p.name)
	if err != nil {
		t.Fatal(err)
	}
	stuck, err := p.queue.js.CreateStream(ctx, jetstream.StreamConfig{Name: "STUCK", Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	read, made := 0, 0
	err = stream.ReadUntil(ctx, stream.Until{Conn: p.nc, Stream: stuckStream{source, stuck, &made}, Last: 40}, func(jetstream.Msg, *jetstream.MsgMetadata) error {
		read++
		return nil
	})
	if err != nil || read != 40 || made != 2 {
		t.Errorf("read %d of 40 from %d consumers, %v", read, made, err)
	}
}
