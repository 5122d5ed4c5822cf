package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"weir/cmd/internal/contest"
)

// batcherRole is the role of a producer that publishes many jobs in one message.
const batcherRole = "batcher"

// batchJobs is how many jobs one message of the batcher has.
const batchJobs = 100

// answersWithin bounds how long the batcher waits for an answer.
const answersWithin = time.Minute

// batcher is a producer that publishes batches. It has as many unanswered jobs at once as a producer of single jobs.
func batcher(_ context.Context, set contest.Settings) (contest.Do, error) {
	nc, _, err := contest.Connect(set.Store)
	if err != nil {
		return nil, err
	}
	inbox := nc.NewRespInbox()
	answers := make(chan *nats.Msg, contest.Unacknowledged)
	if _, err := nc.ChanSubscribe(inbox, answers); err != nil {
		return nil, fmt.Errorf("listen for answers: %w", err)
	}
	id := newIDs("job")
	return func(ctx context.Context, o contest.Order) error {
		open := 0
		for job := 0; job < o.Jobs || open > 0; {
			if job < o.Jobs && open < contest.Unacknowledged/batchJobs {
				n := min(batchJobs, o.Jobs-job)
				m := &nats.Msg{
					Subject: set.Queue + "." + o.Queue + "._", Reply: inbox, Header: nats.Header{"Weir-Batch": {strconv.Itoa(n)}}, Data: batchOf(o, job, n, id),
				}
				if err := nc.PublishMsg(m); err != nil {
					return fmt.Errorf("publish jobs from %d on: %w", job, err)
				}
				job += n
				open++
				continue
			}
			if err := heard(ctx, answers); err != nil {
				return err
			}
			open--
		}
		return nil
	}, nil
}

// batchOf encodes n jobs as the body of a batch. Each job is a line with the sizes of its headers and its body and with
// its key, then the headers, then the body.
func batchOf(o contest.Order, first, n int, id func() string) (data []byte) {
	for job := first; job < first+n; job++ {
		header := "Nats-Msg-Id: " + id() + "\r\n"
		body := contest.Body(job, o.Body)
		data = fmt.Appendf(data, "%d %d key-%d\r\n", len(header), len(body), job%o.Keys)
		data = append(append(data, header...), body...)
	}
	return data
}

// heard waits for the answer to one batch. It fails unless each job was accepted.
func heard(ctx context.Context, answers <-chan *nats.Msg) error {
	late := time.NewTimer(answersWithin)
	defer late.Stop()
	select {
	case m := <-answers:
		var told struct {
			Jobs []*struct {
				Seq uint64 `json:"seq"`
			} `json:"jobs"`
		}
		err := json.Unmarshal(m.Data, &told)
		for _, job := range told.Jobs {
			if job == nil || job.Seq == 0 {
				err = errors.New("a job was not taken")
			}
		}
		if err == nil && len(told.Jobs) == 0 {
			err = errors.New("it is about no job")
		}
		if err != nil {
			return fmt.Errorf("the answer to a batch: %w: %.500s", err, m.Data)
		}
		return nil
	case <-late.C:
		return fmt.Errorf("a batch was not answered within %v", answersWithin)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
