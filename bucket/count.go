package bucket

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// countTries bounds how often a counted put starts again because another producer came first.
const countTries = 16

// putCounted stores a job of a key whose capacity is below what its stream enforces. It reads the last sequence of the
// key and then the number of its messages, and publishes on the condition that the last sequence is still the same:
// since then jobs can only have left, so the capacity holds exactly, whoever else is putting jobs. depth is the number
// that was found.
func (p *Partition) putCounted(ctx context.Context, e *entrant) (answer stored, depth int64) {
	defer delete(e.msg.Header, headerExpectedSubjSeq)
	unsure := false // an earlier try may have stored it
	for range countTries {
		last, err := p.lastSeq(ctx, e.msg.Subject)
		if err == nil {
			depth, err = p.count(ctx, e.msg.Subject)
		}
		if err != nil {
			return stored{err: unsureOf(unsure, err)}, depth
		}
		if depth >= e.limits.Capacity {
			delete(e.msg.Header, headerExpectedSubjSeq)
			e.msg.Header[headerExpectedID] = []string{impossibleID}
		} else {
			e.msg.Header[headerExpectedSubjSeq] = []string{strconv.FormatUint(last, 10)}
		}
		answer = p.intake.singly(ctx, []*nats.Msg{e.msg})[0]
		switch {
		case errors.Is(answer.err, errNotKnown):
			return stored{err: errFull}, depth
		case !errors.Is(answer.err, errStale):
			return answer, depth
		}
		unsure = unsure || errors.Is(answer.err, errUnanswered)
	}
	return stored{err: unsureOf(unsure, fmt.Errorf("%w %d times in a row", errStale, countTries))}, depth
}

// lastSeq asks the stream's leader: a replica that lags would only make the condition fail.
func (p *Partition) lastSeq(ctx context.Context, subject string) (uint64, error) {
	m, err := p.fromLeader(ctx, fmt.Sprintf(`{"last_by_subj":%q}`, subject))
	if err != nil {
		return 0, fmt.Errorf("last message of %s: %w", subject, err)
	}
	return m, nil
}

func (p *Partition) count(ctx context.Context, subject string) (int64, error) {
	info, err := p.stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, fmt.Errorf("number of messages of the key: %w", err)
	}
	return int64(info.State.Subjects[subject]), nil
}
