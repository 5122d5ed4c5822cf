package client

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// SubmitMany submits jobs in their order, up to MaxBatch of an api in one message, and waits until each is stored or
// refused. A message with a hundred jobs costs little more than one with a single job. Jobs of one api share messages
// as long as no job of another api is between them. One message is under way at a time, and SubmitMany waits for its
// answer for Options.AnswerWithin at most. A job that is refused or has no answer loses its place: by the time that it
// is submitted again, weir has taken the jobs behind it.
//
// SubmitMany gives each job without an ID a new one, in jobs itself. So the same jobs can be submitted again.
//
// It returns answers in the order of the jobs. Without an error each job has one. With an error only the first jobs
// have one: submit the rest, jobs[len(answers):], again. Jobs of the last message may have been accepted already. If an
// Answer wraps ErrNoAnswer, submit that job again too. A job that no message can carry is not sent, and its Answer has
// that error.
func (c *Client) SubmitMany(ctx context.Context, jobs []Submission) ([]Answer, error) {
	answers := make([]Answer, 0, len(jobs))
	for i := range jobs {
		jobs[i] = jobs[i].Named()
	}
	for len(answers) < len(jobs) {
		some, err := c.submitBatch(ctx, jobs[len(answers):])
		if err != nil {
			return answers, err
		}
		answers = append(answers, some...)
	}
	return answers, nil
}

// submitBatch submits as many of the first jobs as one message may have, at least one, and returns the answers to them.
func (c *Client) submitBatch(ctx context.Context, jobs []Submission) ([]Answer, error) {
	if err := c.connected(); err != nil {
		return nil, fmt.Errorf("submit to %s: %w", jobs[0].API, err)
	}
	api, room := jobs[0].API, int(c.nc.MaxPayload())-BatchEnvelope
	b := NewBatch(api)
	var answers []Answer
	var sent []int // indexes of the jobs in the batch
	for i, s := range jobs {
		if s.API != api || b.Jobs() == MaxBatch {
			break
		}
		msg, err := c.message(ctx, s)
		size := 0
		if err == nil {
			if size = SizeInBatch(msg); size > int(c.nc.MaxPayload())-BatchEnvelope {
				err = fmt.Errorf("the job is larger than the server's limit of %d bytes: %w", c.nc.MaxPayload(), nats.ErrMaxPayload)
			} else if size > room {
				break
			}
		}
		if err == nil {
			err = b.Add(msg)
		}
		answers = append(answers, Answer{Err: err})
		if err == nil {
			sent = append(sent, i)
			room -= size
		}
	}
	if len(sent) == 0 {
		return answers, nil
	}
	once, cancel := context.WithTimeoutCause(ctx, c.opts.AnswerWithin, ErrNoAnswer)
	defer cancel()
	data, err := c.request(once, api, b.Message())
	if err != nil {
		return nil, err
	}
	told, err := ParseBatch(data, len(sent))
	if err != nil {
		return nil, fmt.Errorf("submit to %s: %w", api, err)
	}
	for k, i := range sent {
		answers[i] = told[k]
	}
	return answers, nil
}
