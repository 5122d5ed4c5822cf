package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Options configure a Client. The zero value is usable.
type Options struct {
	// UnderWay bounds the jobs of SubmitAsync that have no answer yet. Zero means DefaultUnderWay. The maximum is
	// 65536.
	UnderWay int
	// AnswerWithin is how long SubmitAsync waits for an answer, and SubmitMany for the answer to each message. Submit
	// waits as long if its context has no deadline. Do waits as long before it tries again. Zero means
	// DefaultAnswerWithin.
	AnswerWithin time.Duration
	// Optional. Inject writes the trace context of ctx into the headers of a job. With OpenTelemetry it is:
	//
	//	func(ctx context.Context, h nats.Header) {
	//		otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(h))
	//	}
	Inject func(ctx context.Context, h nats.Header)
}

// The defaults of Options. weir waits for its store for some seconds before it answers 503.
const (
	DefaultUnderWay     = 256
	DefaultAnswerWithin = 15 * time.Second

	mostUnderWay = 65536
)

// ErrNoAnswer is wrapped by errors that report that no answer came in time. The job may have been accepted: submit it
// again under the same ID.
var ErrNoAnswer = errors.New("no answer: the job may have been accepted; submit it again under the same id")

// Client submits jobs to weir. It is safe for concurrent use.
type Client struct {
	nc    *nats.Conn
	opts  Options
	async async
}

// New returns a client that uses nc. It sends nothing to the server. The caller still owns the connection.
func New(nc *nats.Conn, o Options) *Client {
	if o.UnderWay <= 0 {
		o.UnderWay = DefaultUnderWay
	}
	o.UnderWay = min(o.UnderWay, mostUnderWay)
	if o.AnswerWithin <= 0 {
		o.AnswerWithin = DefaultAnswerWithin
	}
	return &Client{nc: nc, opts: o, async: async{room: make(chan struct{}, o.UnderWay)}}
}

// Submit submits one job and waits until it is stored or refused, or ctx ends.
//
// Submit returns a refusal as a *Refusal, and the answer of a foreign stream as a *ForeignAnswer. After
// nats.ErrNoResponders this submission was not accepted. After a *ForeignAnswer or any other error the job may have
// been accepted: submit it again under the same ID. To do so, set an ID or call Named first. Without an ID, a second
// try is a second job.
func (c *Client) Submit(ctx context.Context, s Submission) (Receipt, error) {
	msg, err := c.message(ctx, s)
	if err != nil {
		return Receipt{}, err
	}
	answer, err := c.request(ctx, s.API, msg)
	if err != nil {
		return Receipt{}, err
	}
	return ParseAnswer(answer)
}

// request sends a message with jobs of an api and returns the answer.
func (c *Client) request(ctx context.Context, api string, msg *nats.Msg) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.opts.AnswerWithin, ErrNoAnswer)
		defer cancel()
	}
	if err := c.connected(); err != nil {
		return nil, fmt.Errorf("submit to %s: %w", api, err)
	}
	answer, err := c.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, noWeir(api)
	case err != nil && errors.Is(context.Cause(ctx), ErrNoAnswer):
		return nil, fmt.Errorf("submit to %s: %w", api, ErrNoAnswer)
	case err != nil:
		return nil, fmt.Errorf("submit to %s: %w", api, err)
	}
	return answer.Data, nil
}

// connected fails if the connection was never established. The limits of the server are unknown then, and nats.go would
// take it for one that supports no headers.
func (c *Client) connected() error {
	if c.nc.MaxPayload() == 0 {
		return fmt.Errorf("no connection to a server yet: %w", nats.ErrDisconnected)
	}
	return nil
}

func noWeir(api string) error {
	return fmt.Errorf("submit to %s: no running weir accepts jobs of this api: %w", api, nats.ErrNoResponders)
}

// message renders a submission, with the trace context of ctx.
func (c *Client) message(ctx context.Context, s Submission) (*nats.Msg, error) {
	if c.opts.Inject != nil {
		h := nats.Header{}
		c.opts.Inject(ctx, h)
		for name, values := range s.JobHeader {
			h[name] = values // a header that the caller set wins
		}
		s.JobHeader = h
	}
	return s.Message()
}
