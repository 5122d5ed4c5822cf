package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrClosed reports that the client is closed.
var ErrClosed = errors.New("the client is closed")

// Pending is a job that was sent by SubmitAsync.
type Pending struct {
	// Job is the submission as it was sent, with its ID. Submit it to send the same job again.
	Job Submission

	done    chan struct{}
	late    *time.Timer
	receipt Receipt
	err     error
}

// Done returns a channel that is closed when the job has its answer, or will get none.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait returns what Submit would: the receipt, a *Refusal, or another error. If ctx ends first, it returns the cause.
func (p *Pending) Wait(ctx context.Context) (Receipt, error) {
	select {
	case <-p.done:
		return p.receipt, p.err
	case <-ctx.Done():
		return Receipt{}, context.Cause(ctx)
	}
}

// async holds the jobs of SubmitAsync that have no answer yet.
type async struct {
	room chan struct{} // one slot for each such job

	mu      sync.Mutex // guards what follows, and keeps jobs in the order of submission
	inbox   string     // answers come to <inbox>.<number>
	sub     *nats.Subscription
	last    uint64
	waiting map[string]*Pending
	closed  bool
}

// SubmitAsync sends a job and returns before the answer comes. It blocks while Options.UnderWay jobs have no answer, or
// until ctx ends. An error means that this job was not sent. Every Pending ends: after Options.AnswerWithin with
// ErrNoAnswer.
//
// If a producer retries at once against a full bucket, weir is busy with refusals. Wait for the refusal's RetryAfter,
// keep UnderWay below the bucket's capacity, and set Submission.Retries: without it each refusal is a dead letter.
func (c *Client) SubmitAsync(ctx context.Context, s Submission) (*Pending, error) {
	s = s.Named()
	msg, err := c.message(ctx, s)
	if err != nil {
		return nil, err
	}
	select {
	case c.async.room <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p := &Pending{Job: s, done: make(chan struct{})}
	if err := c.send(p, msg); err != nil {
		<-c.async.room
		return nil, fmt.Errorf("submit to %s: %w", s.API, err)
	}
	return p, nil
}

func (c *Client) send(p *Pending, msg *nats.Msg) error {
	a := &c.async
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrClosed
	}
	if err := c.connected(); err != nil {
		return err
	}
	if a.sub == nil {
		inbox := c.nc.NewInbox()
		sub, err := c.nc.Subscribe(inbox+".*", a.answered)
		if err != nil {
			return err
		}
		a.inbox, a.sub, a.waiting = inbox, sub, map[string]*Pending{}
	}
	a.last++
	number := strconv.FormatUint(a.last, 36)
	msg.Reply = a.inbox + "." + number
	if err := c.nc.PublishMsg(msg); err != nil {
		return err
	}
	a.waiting[number] = p
	p.late = time.AfterFunc(c.opts.AnswerWithin, func() {
		a.end(number, Receipt{}, fmt.Errorf("submit to %s: %w", p.Job.API, ErrNoAnswer))
	})
	return nil
}

// answered handles a message to the inbox. If no intake listens, the server sends an empty one with status 503.
func (a *async) answered(msg *nats.Msg) {
	number := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		a.end(number, Receipt{}, fmt.Errorf("no running weir accepts jobs of the api: %w", nats.ErrNoResponders))
		return
	}
	receipt, err := ParseAnswer(msg.Data)
	a.end(number, receipt, err)
}

func (a *async) end(number string, receipt Receipt, err error) {
	a.mu.Lock()
	p, ok := a.waiting[number]
	delete(a.waiting, number)
	a.mu.Unlock()
	if !ok {
		return // the second answer, or too late
	}
	p.late.Stop()
	p.receipt, p.err = receipt, err
	close(p.done)
	<-a.room
}

// Flush waits until every job that was sent before the call has its answer, or will get none. It returns the cause if
// ctx ends first.
func (c *Client) Flush(ctx context.Context) error {
	c.async.mu.Lock()
	all := make([]*Pending, 0, len(c.async.waiting))
	for _, p := range c.async.waiting {
		all = append(all, p)
	}
	c.async.mu.Unlock()
	for _, p := range all {
		select {
		case <-p.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close ends every Pending that has no answer with ErrNoAnswer and ErrClosed. Call Flush first. The connection stays
// open. A client that never called SubmitAsync needs no Close. Close may be called twice.
func (c *Client) Close() error {
	a := &c.async
	a.mu.Lock()
	a.closed = true
	sub := a.sub
	a.sub = nil
	given := make([]string, 0, len(a.waiting))
	for number := range a.waiting {
		given = append(given, number)
	}
	a.mu.Unlock()
	for _, number := range given {
		a.end(number, Receipt{}, fmt.Errorf("%w (%w)", ErrClosed, ErrNoAnswer))
	}
	if sub == nil {
		return nil
	}
	if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("stop listening for answers: %w", err)
	}
	return nil
}
