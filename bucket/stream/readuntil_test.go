package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
)

// forty returns a stream of forty messages of ten subjects.
func forty(t *testing.T) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	js := natstest.JetStream(t)
	source, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FORTY", Subjects: []string{"f.*"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if _, err := js.Publish(t.Context(), fmt.Sprint("f.", i%10), nil); err != nil {
			t.Fatal(err)
		}
	}
	return js, source
}

// TestReplicaThatLags checks that a reading gives all messages that the stream's leader holds, although the replica
// that delivers them lags. It must not wait for deleted messages.
func TestReplicaThatLags(t *testing.T) {
	js, source := forty(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lagging, err := natstest.Lagging{JetStream: js}.Stream(ctx, "FORTY")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	count := func(jetstream.Msg, *jetstream.MsgMetadata) error { read++; return nil }
	if err := ReadUntil(ctx, Until{Conn: js.Conn(), Stream: lagging, Last: 40}, count); err != nil || read != 40 {
		t.Errorf("read %d of 40 messages, %v", read, err)
	}
	last, err := LastOf(ctx, js.Conn(), "FORTY", "f.4")
	if err != nil || last != 35 {
		t.Fatalf("the last message of a subject is at %d, %v", last, err)
	}
	read = 0
	from := jetstream.OrderedConsumerConfig{FilterSubjects: []string{"f.1", "f.4"}}
	err = ReadUntil(ctx, Until{Conn: js.Conn(), Stream: source, Last: 40, From: from}, func(jetstream.Msg, *jetstream.MsgMetadata) error {
		if read++; read == 1 {
			for seq := uint64(30); seq <= 40; seq++ {
				if err := source.DeleteMsg(ctx, seq); err != nil {
					return fmt.Errorf("%d: %w", seq, err)
				}
			}
		}
		return nil
	})
	if err != nil || read < 6 || read > 8 { // two of eight were deleted meanwhile
		t.Errorf("read %d messages of two subjects, %v", read, err)
	}
}

// stuckStream simulates a replica that does not catch up: its first consumer delivers nothing.
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

// TestReplicaThatIsStuck checks that ReadUntil tries another replica if one delivers none of the messages that the
// leader holds.
func TestReplicaThatIsStuck(t *testing.T) {
	js, source := forty(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stuck, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "STUCK", Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	read, made := 0, 0
	err = ReadUntil(ctx, Until{Conn: js.Conn(), Stream: stuckStream{source, stuck, &made}, Last: 40}, func(jetstream.Msg, *jetstream.MsgMetadata) error {
		read++
		return nil
	})
	if err != nil || read != 40 || made != 2 {
		t.Errorf("read %d of 40 from %d consumers, %v", read, made, err)
	}
}

// TestReadUntilEnds checks that a reading ends at its last message, at an error of take, and with its context. If there
// is nothing to read, it ends at once.
func TestReadUntilEnds(t *testing.T) {
	js, source := forty(t)
	read := func(ctx context.Context, last uint64, from jetstream.OrderedConsumerConfig, stop error) (n int, err error) {
		err = ReadUntil(ctx, Until{Conn: js.Conn(), Stream: source, Last: last, From: from}, func(_ jetstream.Msg, meta *jetstream.MsgMetadata) error {
			if n++; meta.Sequence.Stream > last {
				t.Errorf("message %d is given, the last was to be %d", meta.Sequence.Stream, last)
			}
			return stop
		})
		return n, err
	}
	if n, err := read(t.Context(), 7, jetstream.OrderedConsumerConfig{}, nil); n != 7 || err != nil {
		t.Errorf("read %d of 7, %v", n, err)
	}
	if n, err := read(t.Context(), 0, jetstream.OrderedConsumerConfig{}, nil); n != 0 || err != nil {
		t.Errorf("read %d of none, %v", n, err)
	}
	later := time.Now().Add(time.Hour)
	if n, err := read(t.Context(), 40, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &later}, nil); n != 0 || err != nil {
		t.Errorf("read %d of what was stored in an hour, %v", n, err)
	}
	enough := errors.New("enough")
	if n, err := read(t.Context(), 40, jetstream.OrderedConsumerConfig{}, enough); n != 1 || !errors.Is(err, enough) {
		t.Errorf("read %d messages, %v", n, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if n, err := read(ctx, 40, jetstream.OrderedConsumerConfig{}, nil); err == nil {
		t.Errorf("read %d messages after the context had ended", n)
	}
}
