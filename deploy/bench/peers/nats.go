//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The streams of the bare work queue.
const (
	bareSubject = "bare"
	bareBusy    = "BARE_BUSY"
	bareWaiting = "BARE_WAITING"
)

// unacknowledged bounds what a producer on JetStream has under way.
const unacknowledged = 4000

// startBare starts the nats-server that weir has inside as a process of its own, and returns its address.
func startBare(ctx context.Context, s *stage, durability string) (server *process, url string, err error) {
	server, err = s.start(command{
		name: "nats-server", path: s.weir, dir: s.dir,
		args: []string{"nats-server", "--listen", "127.0.0.1:0", "--dir", s.path("nats-" + durability), "--durability", durability},
	})
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("the nats-server did not come up within %v", startWithin))
	defer cancel()
	line, err := server.await(ctx, func(line string) bool { return strings.HasPrefix(line, "listening ") })
	return server, strings.TrimPrefix(line, "listening "), err
}

func natsRole(ctx context.Context, s settings) (role, error) {
	nc, err := nats.Connect(s.Store)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(unacknowledged), jetstream.WithPublishAsyncTimeout(time.Minute))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if !s.Worker {
		return func(ctx context.Context, o order) error { return publishJetStream(ctx, js, s.Queue+"."+o.Queue, o) }, nil
	}
	for _, stream := range []jetstream.StreamConfig{
		{Name: bareBusy, Subjects: []string{s.Queue + ".busy.>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: bareWaiting, Subjects: []string{s.Queue + ".waiting.>"}, Retention: jetstream.WorkQueuePolicy},
	} {
		if _, err := js.CreateOrUpdateStream(ctx, stream); err != nil {
			return nil, fmt.Errorf("make the stream: %w", err)
		}
	}
	w := &bareWorker{js: js, caller: newCaller(s), slots: make(chan struct{}, s.AtOnce)}
	return w.do, nil
}

// publishJetStream goes on before it is answered, and returns when every job is acknowledged.
func publishJetStream(ctx context.Context, js jetstream.JetStream, subject string, o order) error {
	acks := make([]jetstream.PubAckFuture, 0, o.Jobs)
	for job := range o.Jobs {
		m := &nats.Msg{Subject: subject + ".key-" + strconv.Itoa(job%o.Keys), Data: bodyOf(job, o.Body)}
		ack, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return fmt.Errorf("publish job %d: %w", job, err)
		}
		acks = append(acks, ack)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
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

// bareWorker calls for each message and acknowledges it.
type bareWorker struct {
	js        jetstream.JetStream
	caller    caller
	slots     chan struct{}
	consuming jetstream.ConsumeContext
	running   sync.WaitGroup
}

func (w *bareWorker) do(ctx context.Context, o order) error {
	if o.Do == "rest" {
		w.consuming.Stop()
		<-w.consuming.Closed()
		w.running.Wait()
		return nil
	}
	consumer, err := w.js.CreateOrUpdateConsumer(ctx, bareBusy, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4 * cap(w.slots),
	})
	if err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	w.consuming, err = consumer.Consume(func(m jetstream.Msg) {
		w.slots <- struct{}{}
		w.running.Go(func() {
			defer func() { <-w.slots }()
			if w.caller.call(ctx, m.Data()) == nil {
				_ = m.Ack() // without one the job comes again, and the api tells
			}
		})
	})
	return err
}
