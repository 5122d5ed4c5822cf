package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Options of a Client. The zero value is good.
type Options struct {
	// UnderWay bounds the jobs of SubmitAsync that have no answer yet; 0: DefaultUnderWay, at most 65536.
	UnderWay int
	// AnswerWithin is how long SubmitAsync waits for an answer, and Submit and Do where their context has no deadline; 0: DefaultAnswerWithin.
	AnswerWithin time.Duration
	// Inject writes the trace context of ctx into the headers of a job, if it is not nil. With OpenTelemetry it is
	//
	//	func(ctx context.Context, h nats.Header) {
	//		otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(h))
	//	}
	Inject func(ctx context.Context, h nats.Header)
}

// What Options mean by zero. weir itself waits some seconds for its store before it answers 503.
const (
	DefaultUnderWay     = 256
	DefaultAnswerWithin = 15 * time.Second

	mostUnderWay = 65536
)

// ErrNoAnswer is wrapped where no answer came in time: nobody knows whether the job was taken. Submit it again under the same ID.
var ErrNoAnswer = errors.New("no answer came: nobody knows whether the job was taken; submit it again under the same id")

// Client hands jobs to weir. It is safe for concurrent use.
type Client struct {
	nc    *nats.Conn
	opts  Options
	async async
}

// New makes a client of a connection, which stays the caller's. It asks nothing of the server.
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

// Submit hands in one job and waits until it is stored or refused, or ctx ends.
//
// A refusal is a *Refusal. A *ForeignAnswer says that a stream answered in weir's place. With it, and with any other error, nobody knows
// whether the job was taken, except that with nats.ErrNoResponders it was not: submit it again under the same ID. So give it one, or
// call Named before: without an ID a second try is a second job.
func (c *Client) Submit(ctx context.Context, s Submission) (Receipt, error) {
	msg, err := c.message(ctx, s)
	if err != nil {
		return Receipt{}, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.opts.AnswerWithin, ErrNoAnswer)
		defer cancel()
	}
	answer, err := c.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Receipt{}, noWeir(s.API)
	case err != nil && errors.Is(context.Cause(ctx), ErrNoAnswer):
		return Receipt{}, fmt.Errorf("submit to %s: %w", s.API, ErrNoAnswer)
	case err != nil:
		return Receipt{}, fmt.Errorf("submit to %s: %w", s.API, err)
	}
	return ParseAnswer(answer.Data)
}

func noWeir(api string) error {
	return fmt.Errorf("submit to %s: no weir takes jobs there: %w", api, nats.ErrNoResponders)
}

// message is the submission's, with the trace context of ctx.
func (c *Client) message(ctx context.Context, s Submission) (*nats.Msg, error) {
	if c.opts.Inject != nil {
		h := nats.Header{}
		c.opts.Inject(ctx, h)
		for name, values := range s.JobHeader {
			h[name] = values // what the caller wrote wins
		}
		s.JobHeader = h
	}
	return s.Message()
}
