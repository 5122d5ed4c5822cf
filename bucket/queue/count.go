package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	"weir/bucket/stream"
)

// countTries bounds how often a counted put starts again because another process stored a job of the key first.
// countAtOnce bounds how many keys are counted in parallel.
const (
	countTries  = 16
	countAtOnce = 32
)

// tally is the state of one key while its jobs are put: the sequence of its last message, and an upper bound of its
// messages. If another process stores a job, the condition of the next put fails. Jobs that leave only make room.
type tally struct {
	read   bool
	last   uint64
	jobs   int64
	tries  int  // of the first put
	unsure bool // an earlier try may have stored the first put
}

// judged returns the error of the first put, given the error of its last try.
func (t *tally) judged(err error) error {
	if t.unsure {
		return stream.InDoubt(err)
	}
	return err
}

// putCounted stores jobs of keys whose capacity is below what their stream enforces. It reads a key's last sequence,
// and after that the number of the key's messages. It publishes on the condition that the last sequence is still the
// same. After the count, jobs of the key can only have left. So the capacity holds, whatever other processes put. Keys
// are put in parallel, the jobs of one key one after the other.
func (in *intake) putCounted(ctx context.Context, puts []*pendingPut) {
	tallies := map[string]*tally{}
	for len(puts) > 0 {
		var now, later []*pendingPut
		first := map[string]bool{}
		for _, e := range puts {
			if first[e.msg.Subject] {
				later = append(later, e)
				continue
			}
			first[e.msg.Subject] = true
			if tallies[e.msg.Subject] == nil {
				tallies[e.msg.Subject] = &tally{}
			}
			now = append(now, e)
		}
		again := in.putRound(ctx, now, tallies)
		puts = append(again, later...)
	}
}

// putRound puts one job of each key, and returns the puts that must be tried again.
func (in *intake) putRound(ctx context.Context, now []*pendingPut, tallies map[string]*tally) (again []*pendingPut) {
	var counting errgroup.Group
	counting.SetLimit(countAtOnce)
	for _, e := range now {
		t := tallies[e.msg.Subject]
		if t.read && t.jobs < e.limits.Capacity {
			continue
		}
		counting.Go(func() error {
			e.answer.Err = in.count(ctx, e.msg.Subject, t)
			return nil
		})
	}
	_ = counting.Wait() // each has its own error
	var sent []*pendingPut
	for _, e := range now {
		t := tallies[e.msg.Subject]
		if e.answer.Err != nil {
			e.answer.Err = t.judged(e.answer.Err)
			*t = tally{}
			continue
		}
		e.depth = t.jobs
		if t.jobs >= e.limits.Capacity {
			e.msg.Header[stream.HeaderRollup] = []string{impossibleRollup}
		} else {
			e.msg.Header[stream.HeaderExpectedSeq] = []string{strconv.FormatUint(t.last, 10)}
		}
		sent = append(sent, e)
	}
	in.commit(ctx, sent, in.x.Singly)
	for _, e := range sent {
		delete(e.msg.Header, stream.HeaderExpectedSeq)
		if in.judge(e, tallies[e.msg.Subject]) {
			again = append(again, e)
		}
	}
	return again
}

// judge handles the answer to a counted put, and reports whether the put must be tried again.
func (in *intake) judge(e *pendingPut, t *tally) (again bool) {
	switch {
	case e.answer.Err == nil && !e.answer.Duplicate:
		*t = tally{read: true, last: e.answer.Seq, jobs: t.jobs + 1}
	case errors.Is(e.answer.Err, stream.ErrStale) && t.tries < countTries:
		t.read, t.tries, t.unsure = false, t.tries+1, t.unsure || errors.Is(e.answer.Err, stream.ErrUnanswered)
		e.answer = stream.Answer{}
		return true
	case errors.Is(e.answer.Err, stream.ErrStale):
		e.answer = stream.Answer{Err: t.judged(fmt.Errorf("%w %d times in a row", stream.ErrStale, countTries))}
		*t = tally{}
	case errors.Is(e.answer.Err, stream.ErrNotKnown):
		e.answer = stream.Answer{Err: stream.ErrFull}
		*t = tally{}
	default:
		*t = tally{}
	}
	return false
}

// errFormerLeader reports that a stream's state lacks a message that the stream's leader has named.
var errFormerLeader = errors.New("the stream's state is older than the key's last message: a former leader answered")

// count reads a key's last sequence and number of messages from the stream. It fails with errFormerLeader if a former
// leader answered: that server may lack the key's last jobs, and the queue would then accept more jobs than its
// capacity.
func (in *intake) count(ctx context.Context, subject string, t *tally) (err error) {
	if t.last, err = in.source.lastSeq(ctx, subject); err != nil {
		return err
	}
	state, err := stream.StateOf(ctx, in.source.nc, in.source.name, subject)
	if err != nil {
		return fmt.Errorf("number of messages of the key: %w", err)
	}
	if state.LastSeq < t.last {
		return fmt.Errorf("number of messages of the key: %w", errFormerLeader)
	}
	t.jobs, t.read = int64(state.Subjects[subject]), true
	return nil
}
