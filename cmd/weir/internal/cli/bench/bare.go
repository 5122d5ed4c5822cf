package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The stream of the reference.
const (
	bareStream  = "BENCH_BARE"
	bareSubject = "bench.bare"
)

// bareStreamOn makes the reference's stream exist, empty: a work queue where it is consumed.
func bareStreamOn(ctx context.Context, js jetstream.JetStream, retention jetstream.RetentionPolicy) error {
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: bareStream, Subjects: []string{bareSubject + ".>"}, Retention: retention, Replicas: 1, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return fmt.Errorf("make the stream of the reference: %w", err)
	}
	return nil
}

// bareLoop is the least that could be called a worker: a work-queue consumer, an HTTP call, an ack, so many at once.
type bareLoop struct {
	js     jetstream.JetStream
	client *http.Client
	url    string
	keep   func(context.Context) error // stores what came of a call; nil: nothing is stored
}

// callsAtOnce is how many calls run at once, of weir and of the reference.
const callsAtOnce = 64

func newBareLoop(ctx context.Context, js jetstream.JetStream, url string) (*bareLoop, error) {
	if err := bareStreamOn(ctx, js, jetstream.WorkQueuePolicy); err != nil {
		return nil, err
	}
	return &bareLoop{js: js, url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callsAtOnce}, Timeout: time.Minute}}, nil
}

// run consumes until ctx ends. A job whose call fails is not acknowledged, and the round does not end.
func (b *bareLoop) run(ctx context.Context) (stop func(), err error) {
	consumer, err := b.js.CreateOrUpdateConsumer(ctx, bareStream, jetstream.ConsumerConfig{
		Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4 * callsAtOnce,
	})
	if err != nil {
		return nil, fmt.Errorf("make the consumer of the reference: %w", err)
	}
	slots := make(chan struct{}, callsAtOnce)
	var running sync.WaitGroup
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			err := b.call(ctx, m.Data())
			if err == nil && b.keep != nil {
				err = b.keep(ctx)
			}
			if err == nil {
				_ = m.Ack() // without one the job comes again, and the round is told too many calls
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("consume the stream of the reference: %w", err)
	}
	return func() {
		consuming.Stop()
		<-consuming.Closed()
		running.Wait()
	}, nil
}

func (b *bareLoop) call(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/bare", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("a call of the reference: %w", err)
	}
	res, err := b.client.Do(req)
	if err != nil {
		return fmt.Errorf("a call of the reference: %w", err)
	}
	_, err = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if err != nil {
		return fmt.Errorf("a call of the reference: %w", err)
	}
	return nil
}

// bareReceiver tells when what is published reaches a consumer of the reference's stream.
func bareReceiver(ctx context.Context, js jetstream.JetStream) (came <-chan time.Time, stop func(), err error) {
	if err := bareStreamOn(ctx, js, jetstream.LimitsPolicy); err != nil {
		return nil, nil, err
	}
	consumer, err := js.OrderedConsumer(ctx, bareStream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return nil, nil, fmt.Errorf("make the consumer of the reference: %w", err)
	}
	times := make(chan time.Time, 1)
	consuming, err := consumer.Consume(func(jetstream.Msg) {
		select {
		case times <- time.Now():
		case <-ctx.Done():
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("consume the stream of the reference: %w", err)
	}
	return times, consuming.Stop, nil
}

// plainMsg is one message of the reference.
func plainMsg(body int) *nats.Msg {
	return &nats.Msg{Subject: bareSubject + ".one", Data: bytes.Repeat([]byte("x"), body)}
}
