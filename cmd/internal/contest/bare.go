package contest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The queues of bare JetStream. A subject is BareSubject, the queue's name and the key.
const (
	BareSubject = "bench"
	Busy        = "busy"    // the queue that workers read
	Waiting     = "waiting" // the queue that no worker reads

	BusyStream    = "BENCH_BUSY"
	WaitingStream = "BENCH_WAITING"
)

// Unacknowledged bounds the jobs that a producer on JetStream has published and that are not acknowledged.
const Unacknowledged = 4000

// Connect connects to JetStream as a producer does.
func Connect(url string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(url, nats.Name("weir bench"))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the server of the measurement: %w", err)
	}
	js, err := jetstream.New(nc,
		jetstream.WithPublishAsyncMaxPending(Unacknowledged), jetstream.WithPublishAsyncTimeout(time.Minute))
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("connect to JetStream: %w", err)
	}
	return nc, js, nil
}

// BareStreams creates the streams of the bare queues with this many copies, or updates them.
func BareStreams(ctx context.Context, js jetstream.JetStream, copies int) error {
	for _, stream := range []jetstream.StreamConfig{
		{
			Name: BusyStream, Subjects: []string{BareSubject + "." + Busy + ".>"}, Retention: jetstream.WorkQueuePolicy, Replicas: copies,
		},
		{Name: WaitingStream, Subjects: []string{BareSubject + "." + Waiting + ".>"}, Replicas: copies},
	} {
		if _, err := js.CreateOrUpdateStream(ctx, stream); err != nil {
			return fmt.Errorf("make the stream of the bare queue: %w", err)
		}
	}
	return nil
}

// bareRole is the bare worker if s.Worker is true. Otherwise it is a producer on JetStream, for bare queues and for
// weir.
func bareRole(ctx context.Context, s Settings) (Do, error) {
	_, js, err := Connect(s.Store)
	switch {
	case err != nil:
		return nil, err
	case s.Worker:
		return BareWorker(ctx, js, s, nil)
	}
	return func(ctx context.Context, o Order) error { return publish(ctx, js, s.Queue+"."+o.Queue, o) }, nil
}

// publish publishes all jobs without waiting for each acknowledgement. It returns when every job is acknowledged.
func publish(ctx context.Context, js jetstream.JetStream, subject string, o Order) error {
	acks := make([]jetstream.PubAckFuture, 0, o.Jobs)
	for job := range o.Jobs {
		m := &nats.Msg{Subject: subject + ".key-" + strconv.Itoa(job%o.Keys), Data: Body(job, o.Body)}
		ack, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return fmt.Errorf("publish job %d: %w", job, err)
		}
		acks = append(acks, ack)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return fmt.Errorf("not all jobs were acknowledged: %w", context.Cause(ctx))
	}
	for job, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("job %d was not taken: %w", job, err)
		}
	}
	return nil
}

// bareWorker is the simplest possible worker: it makes a call for each message, and then acknowledges the message.
type bareWorker struct {
	js        jetstream.JetStream
	caller    Caller
	keep      func(context.Context) error
	slots     chan struct{}
	consuming jetstream.ConsumeContext
	running   sync.WaitGroup
}

// BareWorker creates the streams and returns a worker of the busy queue. An order "work" makes it work, and an order
// "rest" makes it stop. After each call it calls keep, unless keep is nil, to store the call's outcome. If a call
// fails, the worker does not acknowledge the job, so JetStream delivers the job again.
func BareWorker(ctx context.Context, js jetstream.JetStream, s Settings, keep func(context.Context) error) (Do, error) {
	if err := BareStreams(ctx, js, max(1, s.Copies)); err != nil {
		return nil, err
	}
	w := &bareWorker{js: js, caller: NewCaller(s.API, s.AtOnce), keep: keep, slots: make(chan struct{}, s.AtOnce)}
	return w.do, nil
}

func (w *bareWorker) do(ctx context.Context, o Order) error {
	if o.Do == "rest" {
		w.consuming.Stop()
		<-w.consuming.Closed()
		w.running.Wait()
		return nil
	}
	consumer, err := w.js.CreateOrUpdateConsumer(ctx, BusyStream, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4 * cap(w.slots),
	})
	if err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	w.consuming, err = consumer.Consume(func(m jetstream.Msg) {
		w.slots <- struct{}{}
		w.running.Go(func() {
			defer func() { <-w.slots }()
			err := w.caller.Call(ctx, m.Data())
			if err == nil && w.keep != nil {
				err = w.keep(ctx)
			}
			if err == nil {
				_ = m.Ack() // without the acknowledgement the job is delivered again, and the api reports that
			}
		})
	})
	return err
}
