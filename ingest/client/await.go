package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The streams that store ends.
const (
	resultsStream  = "WEIR_RESULTS"
	resultsSubject = "weir.results."
	lettersStream  = "WEIR_DEAD"
	lettersSubject = "weir.dead."
)

// lookAgain is how often Do checks whether its connection was lost, and how long it pauses before it tries an absent
// weir again.
const lookAgain = time.Second

// mostPause bounds the pause before Do tries again to read the streams.
const mostPause = time.Minute

// mostTold bounds the unread messages in an inbox of Do: one end, and notices of refused tries.
const mostTold = 16

// overflow is the outcome of a submission that was refused with Throttled. No accepted job has it.
const overflow = "overflow"

// Do submits one job and waits for its end, which weir sends to Weir-Reply-To. Do overwrites the ReplyTo of s. Give ctx
// a deadline that leaves the job time to wait for its turn. Do returns a refusal as a *Refusal. A dead letter is an
// End, not an error.
//
// If no answer comes, Do sends the job again under the same ID. If weir knows the job already, it sends the end again.
// A try without an answer may have stored the job. After such a try Do keeps trying while weir is absent or answers
// 503, and an error about the submission also wraps ErrNoAnswer.
//
// After a reconnect the message with the end may have been missed. Do then also reads the streams, as Await does. If
// the producer has no permission to read them, Do goes on waiting for the message.
//
// The job continues if ctx ends. To get its end later, call Do again with the same ID within dedupe, or Await for as
// long as weir keeps the end.
func (c *Client) Do(ctx context.Context, s Submission) (End, error) {
	s = s.Named()
	s.ReplyTo = EndsInbox(c.nc.NewInbox())
	told := make(chan *nats.Msg, mostTold)
	sub, err := c.nc.ChanSubscribe(s.ReplyTo, told)
	if err != nil {
		return End{}, fmt.Errorf("listen for the end of job %s: %w", s.ID, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	away := c.nc.Stats().Reconnects
	receipt, err := c.submitUntilAnswered(ctx, s)
	if err != nil {
		return End{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	var found chan End
	for missed := false; ; {
		if missed && found == nil {
			found = make(chan End, 1)
			go c.search(ctx, s.API, receipt, found)
		}
		select {
		case msg := <-told:
			if end, ok := ParseEnd(msg.Header, msg.Data); ok && end.Outcome != overflow {
				end.Key = receipt.Key
				return end, nil
			}
		case end := <-found:
			return end, nil
		case <-look.C:
			missed = missed || c.nc.Stats().Reconnects != away
		case <-ctx.Done():
			return End{}, fmt.Errorf("job %s of %s was taken and has not ended: %w", receipt.Job, s.API, context.Cause(ctx))
		}
	}
}

// search sends the end of an accepted job to found, as soon as a stream has it. After a failure it tries again, until
// ctx ends: a stream may have no leader for a moment after a server has died. The pause grows, because a producer that
// may not read the streams never succeeds.
func (c *Client) search(ctx context.Context, api string, r Receipt, found chan<- End) {
	for pause := lookAgain; ; pause = min(2*pause, mostPause) {
		end, err := c.await(ctx, api, r.Key, r.Job, time.Time{}, r.endsAs)
		if err == nil {
			found <- end
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// submitUntilAnswered sends a job again until an answer comes or ctx ends. A try without an answer may have stored the
// job. After such a try only a receipt proves that it did: a 503 or "no responders" does not end the loop, and every
// error wraps ErrNoAnswer.
func (c *Client) submitUntilAnswered(ctx context.Context, s Submission) (Receipt, error) {
	for unsure := false; ; {
		once, cancel := context.WithTimeoutCause(ctx, c.opts.AnswerWithin, ErrNoAnswer)
		receipt, err := c.Submit(once, s)
		cancel()
		var refusal *Refusal
		switch away := errors.Is(err, nats.ErrNoResponders) || errors.As(err, &refusal) && refusal.Code == Unavailable; {
		case errors.Is(err, ErrNoAnswer) && ctx.Err() == nil:
			unsure = true
			continue
		case err == nil || !unsure:
			return receipt, err
		case !away:
			return Receipt{}, fmt.Errorf("%w (an earlier try: %w)", err, ErrNoAnswer)
		}
		select {
		case <-time.After(min(c.opts.AnswerWithin, lookAgain)):
		case <-ctx.Done():
			return Receipt{}, fmt.Errorf("submit to %s: %w: %w", s.API, context.Cause(ctx), ErrNoAnswer)
		}
	}
}

// Await waits until a job has its result in WEIR_RESULTS or its letter in WEIR_DEAD. It reads the ends of the job's key
// that were stored at since or later; zero reads all that weir keeps. So it also finds the end of a job that an earlier
// process submitted. It blocks until ctx ends, and continues after a reconnect.
//
// If a job was refused, and accepted when it was sent again, its first letter is the refusal's: pass a since after that
// letter.
func (c *Client) Await(ctx context.Context, api, key, job string, since time.Time) (End, error) {
	return c.await(ctx, api, key, job, since, func(End) bool { return true })
}

// await is Await for ends that satisfy wanted.
func (c *Client) await(ctx context.Context, api, key, job string, since time.Time, wanted func(End) bool) (End, error) {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return End{}, fmt.Errorf("await job %s: %w", job, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ends := make(chan End, 2)
	for stream, subject := range map[string]string{
		resultsStream: resultsSubject + Token(api) + "." + Token(key), lettersStream: lettersSubject + Token(api) + ".*." + Token(key),
	} {
		cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}, HeadersOnly: stream == lettersStream}
		if !since.IsZero() {
			cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
		}
		consumer, err := js.OrderedConsumer(ctx, stream, cfg)
		if err != nil {
			return End{}, fmt.Errorf("await job %s in %s: %w", job, stream, err)
		}
		reading, err := consumer.Consume(func(msg jetstream.Msg) {
			if end, ok := ParseEnd(msg.Headers(), msg.Data()); ok && end.Job == job && wanted(end) {
				end.API, end.Key = api, key
				select {
				case ends <- end:
				default: // one is enough
				}
			}
		}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				cancel(fmt.Errorf("await job %s in %s: %w", job, stream, err))
			}
		}))
		if err != nil {
			return End{}, fmt.Errorf("await job %s in %s: %w", job, stream, err)
		}
		defer reading.Stop()
	}
	select {
	case end := <-ends:
		return end, nil
	case <-ctx.Done():
		return End{}, fmt.Errorf("await job %s: %w", job, context.Cause(ctx))
	}
}
