package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/fault"
	"weir/bucket/stream"
)

// MaxUnswept bounds the finished messages of one partition that are not deleted yet. Above it the owner starts no call,
// so that the next owner has at most this many finished jobs to look up.
const MaxUnswept = 4096

// sweeper deletes finished messages. If everything up to a sequence is finished, one purge replaces many deletes: with
// fsync on every write each single delete costs an fsync.
//
// A job's message is deleted before its markers, because a job without its markers looks as if it had never been
// called. A server may carry out the deletes of one exchange in any order, so the sweeper deletes markers only after
// the deletes of jobs were answered.
//
// Only its goroutine uses the exchange. The contents holds what it must delete.
type sweeper struct {
	source   *source
	contents *contents
	x        *stream.Exchange
	wake     chan struct{} // has a value when finished messages may be deleted
	log      *slog.Logger  // nil: nothing is logged
	told     time.Time     // when a refusal was last logged
}

func newSweeper(s *source, c *contents, log *slog.Logger) (*sweeper, error) {
	x, err := stream.NewExchange(s.nc, nil)
	if err != nil {
		return nil, err
	}
	return &sweeper{source: s, contents: c, x: x, wake: make(chan struct{}, 1), log: log}, nil
}

// Finish marks the job with this key and sequence as finished. Its outcome must be stored elsewhere: its message may be
// deleted from now on.
func (p *Partition) Finish(key string, seq uint64) {
	p.contents.finish(key, seq)
	p.sweeper.kick()
}

// Discard marks a marker as no longer needed.
func (p *Partition) Discard(seq uint64) { p.Finish("", seq) }

// Unswept returns the number of finished messages that are not deleted yet.
func (p *Partition) Unswept() int { return p.contents.unswept() }

func (s *sweeper) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sweeper) run(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return s.x.Close()
		}
		for ctx.Err() == nil && s.mayDelete() {
			upTo, covered, single := s.contents.sweepable()
			if len(covered)+len(single.jobs)+len(single.markers) == 0 {
				break
			}
			if !s.sweep(ctx, upTo, covered, single) && !stream.Sleep(ctx, time.Second) {
				break // the stream did not answer: try again
			}
		}
	}
}

// mayDelete reports whether finished messages may be deleted. After a lost connection they may not, until streamReset
// has found that the stream was not reset: another job may have the sequence by then. A delete that is on its way when
// the connection breaks may still arrive, because a delete has no condition.
func (s *sweeper) mayDelete() bool { return s.contents.isIntact() && s.source.nc.IsConnected() }

// sweep deletes messages, and reports whether it deleted all. A message whose deletion fails stays finished, and the
// next sweep tries again.
func (s *sweeper) sweep(ctx context.Context, upTo uint64, covered []uint64, single singles) bool {
	ok := true
	fault.Pass(fault.DeleteNext)
	if len(covered) > 0 {
		if err := s.purge(ctx, upTo); err != nil {
			ok = false
			s.tell(err)
			single = s.contents.apart(covered)
		} else {
			s.contents.gone(covered)
		}
	}
	for _, some := range [][]uint64{single.jobs, single.markers} {
		done := s.deleteAll(ctx, some)
		fault.Pass(fault.Deleted)
		s.contents.gone(done)
		if len(done) < len(some) {
			return false
		}
	}
	return ok
}

// deleteAll deletes messages one by one, and returns those that the stream reports as gone.
func (s *sweeper) deleteAll(ctx context.Context, seqs []uint64) (done []uint64) {
	var failed error
	for i, reply := range s.x.Do(ctx, s.deletes(seqs), stream.Every) {
		if err := readDeletion(reply.Msg); err != nil {
			failed = fmt.Errorf("delete %d from %s: %w", seqs[i], s.source.name, err)
			continue
		}
		done = append(done, seqs[i])
	}
	s.tell(failed)
	return done
}

// tell logs that the stream refused to delete, at most once per refusalPause. It logs nothing if the stream did not
// answer.
func (s *sweeper) tell(err error) {
	var refusal *jetstream.APIError
	if s.log == nil || !errors.As(err, &refusal) || time.Since(s.told) < refusalPause {
		return
	}
	s.told = time.Now()
	s.log.Warn("the stream refuses to delete finished jobs, which take up the room of their keys; if they are too many, the partition starts no calls; weir keeps trying",
		"api", s.source.api, "stream", s.source.name, "unswept", s.contents.unswept(), "err", err)
}

const refusalPause = time.Minute

func (s *sweeper) purge(ctx context.Context, upTo uint64) error {
	// At or below upTo these subjects hold only finished messages, jobs and markers alike. The owner's epoch has
	// another subject.
	ctx, cancel := context.WithTimeout(ctx, stream.AnswerWait)
	defer cancel()
	err := s.source.stream.Purge(ctx, jetstream.WithPurgeSubject(s.source.subjects()),
		jetstream.WithPurgeSequence(upTo+1))
	if err != nil {
		return fmt.Errorf("purge %s up to %d: %w", s.source.name, upTo, err)
	}
	return nil
}

func (s *sweeper) deletes(seqs []uint64) []*nats.Msg {
	msgs := make([]*nats.Msg, len(seqs))
	for i, seq := range seqs {
		// Without no_erase the server overwrites the block, which costs a hundred times as much.
		msgs[i] = &nats.Msg{
			Subject: "$JS.API.STREAM.MSG.DELETE." + s.source.name,
			Data:    fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq),
		}
	}
	return msgs
}

// readDeletion reads the reply to a deletion. It returns nil if the message is gone, and a *jetstream.APIError if the
// stream refused to delete it.
func readDeletion(reply *nats.Msg) error {
	if reply == nil {
		return stream.ErrUnanswered
	}
	var answer struct {
		Success bool                `json:"success"`
		Error   *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err == nil && answer.Error != nil && !saysGone(answer.Error):
		return answer.Error
	case err == nil && (answer.Success || answer.Error != nil):
		return nil
	}
	return stream.ErrUnanswered
}

// saysGone reports whether a stream could not delete a message because it does not have the message: the answer to an
// earlier try may have been lost. The server gives the errors of its store the code of a failed deletion. Two of them
// say that the message is gone: one is for a sequence behind the last one.
func saysGone(e *jetstream.APIError) bool {
	switch e.ErrorCode {
	case stream.CodeSequenceNotFound, stream.CodeNoMessage:
		return true
	case stream.CodeDeleteFailed:
		return e.Description == "stream store EOF" || e.Description == "no message found"
	}
	return false
}
