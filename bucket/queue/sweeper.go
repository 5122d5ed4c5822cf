package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
// The partition's lock guards its state.
type sweeper struct {
	p *Partition
	x *stream.Exchange

	own        map[uint64]string   // keys of the jobs that this process stored and its reader has not received
	read       uint64              // the last sequence read
	newest     time.Time           // the latest time at which a message up to read was stored
	before     readPosition        // read and newest when the connection was last lost; see streamReset
	connection uint64              // how often the connection had been lost
	intact     uint64              // the value of connection when the stream was last found not to be reset
	order      []uint64            // read and not deleted, rising
	names      []uint32            // names of the ids of the messages in order; see Partition.Find
	finished   map[uint64]string   // messages to delete, with the job's key; "" for a marker
	deleted    map[uint64]struct{} // deleted, still in order
	removed    map[uint64]struct{} // deleted by hand and not finished, still in order: see Removal
	passed     uint64              // how many messages were ever added to order
	wake       chan struct{}

	appointments appointments
}

func newSweeper(p *Partition) (*sweeper, error) {
	x, err := stream.NewExchange(p.nc, nil)
	if err != nil {
		return nil, err
	}
	return &sweeper{
		p: p, x: x, own: map[uint64]string{}, removed: map[uint64]struct{}{}, finished: map[uint64]string{}, deleted: map[uint64]struct{}{},
		wake: make(chan struct{}, 1), appointments: newAppointments(),
	}, nil
}

// Finish marks the job with this key and sequence as finished. Its outcome must be stored elsewhere: its message may be
// deleted from now on.
func (p *Partition) Finish(key string, seq uint64) { p.sweeper.finish(key, seq) }

// Discard marks a marker as no longer needed.
func (p *Partition) Discard(seq uint64) { p.sweeper.finish("", seq) }

// Unswept returns the number of finished messages that are not deleted yet.
func (p *Partition) Unswept() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sweeper.finished)
}

// forgetLocked drops everything that was read from the stream.
func (s *sweeper) forgetLocked() {
	s.read, s.newest, s.order, s.names = 0, time.Time{}, nil, nil
	s.before, s.connection = readPosition{}, s.p.reconnects()
	s.intact = s.connection
	clear(s.own)
	s.appointments = newAppointments()
	clear(s.finished)
	clear(s.deleted)
	clear(s.removed)
}

func (s *sweeper) finish(key string, seq uint64) {
	s.p.mu.Lock()
	s.finished[seq] = key
	delete(s.removed, seq)
	s.p.tallyLocked()
	s.p.mu.Unlock()
	s.kick()
}

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
			upTo, covered, single := s.next()
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
func (s *sweeper) mayDelete() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.reconnects() == s.intact && s.p.nc.IsConnected()
}

// singles are finished messages that are deleted one by one, in rising order.
type singles struct{ jobs, markers []uint64 }

// singlesLocked divides messages into jobs and markers, at most MaxExchange of each. If there are more jobs than that,
// it returns no markers, because no marker may be deleted before its job.
func (s *sweeper) singlesLocked(seqs []uint64) (some singles) {
	for _, seq := range seqs {
		if s.finished[seq] != "" {
			some.jobs = append(some.jobs, seq)
		} else {
			some.markers = append(some.markers, seq)
		}
	}
	if len(some.jobs) > stream.MaxExchange {
		some = singles{jobs: some.jobs[:stream.MaxExchange]}
	}
	some.markers = some.markers[:min(len(some.markers), stream.MaxExchange)]
	return some
}

// next chooses what to delete: one purge for the messages that are finished without a gap from the oldest on, and
// single deletes for the rest.
func (s *sweeper) next() (upTo uint64, covered []uint64, single singles) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	front := 0
	for ; front < len(s.order); front++ {
		seq := s.order[front]
		if _, gone := s.deleted[seq]; gone {
			delete(s.deleted, seq)
			continue
		}
		if _, ok := s.finished[seq]; !ok {
			break
		}
		covered = append(covered, seq)
	}
	s.order, s.names = s.order[front:], s.names[front:]
	if len(covered) > 0 {
		upTo = covered[len(covered)-1]
	}
	if len(covered) == 1 {
		upTo, covered = 0, nil
	}
	var rest []uint64
	for seq := range s.finished {
		if seq > upTo {
			rest = append(rest, seq)
		}
	}
	slices.Sort(rest)
	return upTo, covered, s.singlesLocked(rest)
}

// sweep deletes messages, and reports whether it deleted all. A message whose deletion fails stays finished, and the
// next sweep tries again.
func (s *sweeper) sweep(ctx context.Context, upTo uint64, covered []uint64, single singles) bool {
	ok := true
	fault.Pass(fault.DeleteNext)
	if len(covered) > 0 {
		if err := s.purge(ctx, upTo); err != nil {
			ok = false
			s.p.mu.Lock()
			single = s.singlesLocked(covered)
			s.p.mu.Unlock()
		} else {
			s.gone(covered)
		}
	}
	for _, some := range [][]uint64{single.jobs, single.markers} {
		done := s.deleteAll(ctx, some)
		fault.Pass(fault.Deleted)
		s.gone(done)
		if len(done) < len(some) {
			return false
		}
	}
	return ok
}

// deleteAll deletes messages one by one, and returns those that the stream reports as gone.
func (s *sweeper) deleteAll(ctx context.Context, seqs []uint64) (done []uint64) {
	for i, reply := range s.x.Do(ctx, s.deletes(seqs), stream.Every) {
		if isDeleted(reply.Msg) {
			done = append(done, seqs[i])
		}
	}
	return done
}

func (s *sweeper) purge(ctx context.Context, upTo uint64) error {
	// At or below upTo these subjects hold only finished messages, jobs and markers alike. The owner's epoch has
	// another subject.
	ctx, cancel := context.WithTimeout(ctx, stream.AnswerWait)
	defer cancel()
	err := s.p.stream.Purge(ctx, jetstream.WithPurgeSubject(queueSubjects(s.p.queue.api, s.p.number)),
		jetstream.WithPurgeSequence(upTo+1))
	if err != nil {
		return fmt.Errorf("purge %s up to %d: %w", s.p.name, upTo, err)
	}
	return nil
}

func (s *sweeper) deletes(seqs []uint64) []*nats.Msg {
	msgs := make([]*nats.Msg, len(seqs))
	for i, seq := range seqs {
		// Without no_erase the server overwrites the block, which costs a hundred times as much.
		msgs[i] = &nats.Msg{
			Subject: "$JS.API.STREAM.MSG.DELETE." + s.p.name,
			Data:    fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq),
		}
	}
	return msgs
}

// isDeleted reports whether a reply says that the message is gone. "There is no such message" counts too: the answer to
// an earlier try may have been lost.
func isDeleted(reply *nats.Msg) bool {
	if reply == nil {
		return false
	}
	var answer struct {
		Success bool                `json:"success"`
		Error   *jetstream.APIError `json:"error"`
	}
	if json.Unmarshal(reply.Data, &answer) != nil {
		return false
	}
	return answer.Success || answer.Error != nil &&
		(answer.Error.ErrorCode == stream.CodeDeleteNotFound || answer.Error.ErrorCode == stream.CodeDeleteFailed ||
			answer.Error.ErrorCode == stream.CodeNoMessage)
}

// gone removes deleted messages from the book.
func (s *sweeper) gone(seqs []uint64) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for _, seq := range seqs {
		key, ok := s.finished[seq]
		if !ok {
			continue
		}
		delete(s.finished, seq)
		if key != "" {
			s.p.book.leave(key)
		}
		s.p.tallyLocked()
		if seq > s.read || len(s.order) > 0 && seq >= s.order[0] {
			s.deleted[seq] = struct{}{}
		}
	}
	if len(s.deleted) > 1024+len(s.order)/2 {
		left := 0
		for i, seq := range s.order {
			if _, gone := s.deleted[seq]; !gone {
				s.order[left], s.names[left] = seq, s.names[i]
				left++
			}
		}
		s.order, s.names = s.order[:left], s.names[:left]
		maps.DeleteFunc(s.deleted, func(seq uint64, _ struct{}) bool { return seq <= s.read })
	}
}
