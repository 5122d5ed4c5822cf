package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/contest"
)

// A bare reference does not have most of the cost of weir's messages. So there is a second reference, which sends and
// stores the same messages as weir and does nothing else: it checks no job, keeps no limit, no order and no count, and
// waits for no disk. The ratio of weir to this second reference shows the cost of weir's own work.

const (
	floorName    = "same messages, without fsync"
	relaySubject = "relay"
	keptStream   = "BENCH_KEPT"
	keptSubject  = "bench.kept"
)

// Roles of `weir bench` in addition to those of package contest.
const (
	relayRole  = "relay"
	keeperRole = "keeper"
)

// Play plays one of the bench's roles until its input ends. Run has started the process in which Play runs.
func Play(ctx context.Context, in io.Reader, out io.Writer, name, settings string) error {
	return contest.Play(ctx, in, out, map[string]contest.Make{relayRole: relay, keeperRole: keepingWorker, batcherRole: batcher}, name, settings)
}

// keepingWorker is the bare worker, except that it also stores a result and a record for each call.
func keepingWorker(ctx context.Context, set contest.Settings) (contest.Do, error) {
	_, js, err := contest.Connect(set.Store)
	if err != nil {
		return nil, err
	}
	keep, err := keeper(ctx, js)
	if err != nil {
		return nil, err
	}
	return contest.BareWorker(ctx, js, set, keep)
}

// The approximate size of what weir stores for a call: the fields of a result, and the record in the ledger.
const (
	resultFields = 12
	fieldBytes   = 24
	recordBytes  = 640
)

// relay takes messages from producers and stores each under an id in the reference's stream. As an intake does, it
// answers when the message is stored.
func relay(ctx context.Context, set contest.Settings) (contest.Do, error) {
	nc, js, err := contest.Connect(set.Store)
	if err != nil {
		return nil, err
	}
	_, storing, err := contest.Connect(set.Store)
	if err != nil {
		return nil, err
	}
	if err := contest.BareStreams(ctx, js, 1); err != nil {
		return nil, err
	}
	type taken struct {
		stored jetstream.PubAckFuture
		reply  string
	}
	answers := make(chan taken, contest.Unacknowledged)
	id := newIDs("job")
	_, err = nc.Subscribe(relaySubject+".>", func(m *nats.Msg) {
		stored := &nats.Msg{
			Subject: contest.BareSubject + strings.TrimPrefix(m.Subject, relaySubject), Data: m.Data, Header: nats.Header{jetstream.MsgIDHeader: {id()}},
		}
		if ack, err := storing.PublishMsgAsync(stored, jetstream.WithStallWait(time.Minute)); err == nil {
			answers <- taken{ack, m.Reply} // otherwise the producer gets no answer, and the round fails
		}
	})
	if err != nil {
		return nil, fmt.Errorf("make the relay of the reference: %w", err)
	}
	go func() { // runs until the process ends
		for t := range answers {
			select {
			case ack := <-t.stored.Ok():
				answer, _ := json.Marshal(ack) // a PubAck always encodes
				_ = nc.Publish(t.reply, answer)
			case err := <-t.stored.Err(): // the producer reads this as a refusal, and the round fails
				_ = nc.Publish(t.reply, []byte(err.Error()))
			}
		}
	}()
	if err := nc.Flush(); err != nil {
		return nil, fmt.Errorf("make the relay of the reference: %w", err)
	}
	return func(context.Context, contest.Order) error { return errors.New("the relay takes no orders") }, nil
}

// keeper returns a function that stores as much for a call as weir does: a result and a record. The function blocks
// until both are stored.
func keeper(ctx context.Context, js jetstream.JetStream) (keep func(ctx context.Context) error, _ error) {
	for _, what := range []string{"RESULTS", "CALLS"} {
		_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: keptStream + "_" + what, Subjects: []string{keptSubject + "." + what}, Replicas: 1, Storage: jetstream.FileStorage,
		})
		if err != nil {
			return nil, fmt.Errorf("make the stream of the reference: %w", err)
		}
	}
	result, record := newIDs("result"), newIDs("call")
	text := bytes.Repeat([]byte("x"), recordBytes)
	return func(ctx context.Context) error {
		h := nats.Header{jetstream.MsgIDHeader: {result()}}
		for i := range resultFields {
			h["Bench-Field-"+strconv.Itoa(i)] = []string{string(text[:fieldBytes])}
		}
		var acks [2]jetstream.PubAckFuture
		for i, m := range []*nats.Msg{
			{Subject: keptSubject + ".RESULTS", Header: h},
			{Subject: keptSubject + ".CALLS", Header: nats.Header{jetstream.MsgIDHeader: {record()}}, Data: text},
		} {
			ack, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
			if err != nil {
				return fmt.Errorf("store what came of a call: %w", err)
			}
			acks[i] = ack
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				return fmt.Errorf("store what came of a call: %w", err)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}, nil
}

// newIDs returns a function that makes message ids as long as weir's.
func newIDs(of string) func() string {
	began, n := strconv.FormatInt(time.Now().UnixMicro(), 10), atomic.Int64{}
	return func() string { return of + ".WEIR_bench_0." + began + "." + strconv.FormatInt(n.Add(1), 10) }
}
