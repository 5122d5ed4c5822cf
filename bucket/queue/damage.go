package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// A store can lose messages that its stream still counts: nats-server leaves out a message whose checksum is wrong, and
// does not report it. Only owners delete messages, so a message that the stream counts but cannot deliver is lost. A
// server that rebuilds its index counts only the messages that it could read, and reports only how many bytes it threw
// away.

// Bounds of the search for lost messages. mostGiven bounds the messages of the stream, because the subject of each is
// held in memory. mostDeleted bounds the messages deleted between them, and mostSubjects the subjects. The owner looks
// up to damageLooks times, because the queue changes meanwhile.
const (
	mostGiven    = 1 << 18
	mostDeleted  = 1 << 18
	mostSubjects = 1 << 17
	damageLooks  = 3
)

// Damage describes the messages of a stream that its server has lost.
type Damage struct {
	// Jobs counts, by key, the jobs that the stream counts but cannot deliver. Markers counts such markers.
	Jobs    map[string]int
	Markers int
	// Seqs are the known sequences of lost messages, in rising order. If the sequence itself is damaged, the message is
	// not among them.
	Seqs []uint64
	// Dropped is how many bytes the server threw away when it rebuilt its index. It is unknown which messages these
	// were.
	Dropped uint64
	// Unsure says that the queue is too large to find the lost messages.
	Unsure bool
}

// None reports whether nothing is lost.
func (d *Damage) None() bool {
	return len(d.Jobs) == 0 && d.Markers == 0 && len(d.Seqs) == 0 && d.Dropped == 0 && !d.Unsure
}

// held is the number of messages that a stream counts when its owner begins to read it.
type held struct {
	msgs    uint64 // before the owner's epoch
	dropped uint64 // bytes that the server threw away
}

// countHeld asks how many messages the stream holds before this owner's epoch. It must be called before the owner
// deletes anything.
func (s *source) countHeld(ctx context.Context, fence uint64) (h held, err error) {
	info, err := s.details(ctx)
	if err != nil {
		return held{}, err
	}
	behind := info.State.LastSeq + 1 - fence // the epoch, and jobs that came since
	h.msgs = info.State.Msgs - min(behind, info.State.Msgs)
	if info.State.Lost != nil {
		h.dropped = info.State.Lost.Bytes
	}
	return h, nil
}

// details returns a stream's counts, its server's losses, and, unless there are too many, the deleted sequences between
// its messages. The list of these is long, so details does not keep it in stream.
func (s *source) details(ctx context.Context, o ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	now, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	if info := now.CachedInfo(); info.State.NumDeleted > mostDeleted || info.State.NumSubjects > mostSubjects && len(o) > 0 {
		return info, nil
	}
	info, err := now.Info(ctx, append(o, jetstream.WithDeletedDetails(true))...)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", s.name, err)
	}
	return info, nil
}

// Damage looks for messages that the stream counts but cannot deliver. It blocks until it has read the headers of the
// whole stream; calls may go on meanwhile. The owner should call it after ReadOptions.Damaged was called.
func (p *Partition) Damage(ctx context.Context) (Damage, error) {
	var least *Damage
	for range damageLooks {
		d, err := p.source.lookForDamage(ctx)
		if err != nil {
			return Damage{}, err
		}
		if least != nil {
			d.atMost(least)
		}
		if least = &d; d.None() {
			break
		}
	}
	return *least, nil
}

// atMost removes losses that an earlier look did not find: they are messages that came or were deleted during one look.
func (d *Damage) atMost(other *Damage) {
	for key, n := range d.Jobs {
		if n = min(n, other.Jobs[key]); n > 0 {
			d.Jobs[key] = n
		} else {
			delete(d.Jobs, key)
		}
	}
	d.Markers = min(d.Markers, other.Markers)
	d.Seqs = slices.DeleteFunc(d.Seqs, func(seq uint64) bool { return !slices.Contains(other.Seqs, seq) })
}

func (s *source) lookForDamage(ctx context.Context) (d Damage, err error) {
	given := map[uint64]string{} // subjects of the messages that the stream delivers, by sequence
	if err := s.readGiven(ctx, 0, given, mostGiven); errors.Is(err, errTooMany) {
		return Damage{Unsure: true}, nil
	} else if err != nil {
		return d, err
	}
	info, err := s.details(ctx, jetstream.WithSubjectFilter(s.subjects()))
	if err != nil {
		return d, err
	}
	if info.State.NumDeleted > mostDeleted || info.State.NumSubjects > mostSubjects {
		d.Unsure = true
		return d, nil
	}
	var last uint64
	for seq := range given {
		last = max(last, seq)
	}
	if err := s.readGiven(ctx, last, given, mostGiven); errors.Is(err, errTooMany) { // messages that came since
		return Damage{Unsure: true}, nil
	} else if err != nil {
		return d, err
	}
	d.count(&info.State, given)
	return d, nil
}

// errTooMany says that a stream holds more messages than the search for lost ones may hold in memory.
var errTooMany = errors.New("too many messages to hold in memory")

// readGiven adds the subjects of the messages after a sequence to given. It fails with errTooMany if given would hold
// more than most messages.
func (s *source) readGiven(ctx context.Context, after uint64, given map[uint64]string, most int) error {
	last, err := stream.LastOf(ctx, s.nc, s.name, ">")
	if err != nil || last <= after {
		return err
	}
	rest := stream.Until{Conn: s.nc, Stream: s.stream, Last: last}
	rest.From = jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1, HeadersOnly: true,
	}
	err = stream.ReadUntil(ctx, rest, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if len(given) >= most {
			return errTooMany
		}
		given[meta.Sequence.Stream] = msg.Subject()
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", s.name, err)
	}
	return nil
}

// count compares the messages that a stream counts with the messages that it delivers, and adds the differences to d.
func (d *Damage) count(state *jetstream.StreamState, given map[uint64]string) {
	deleted := make(map[uint64]bool, len(state.Deleted))
	for _, seq := range state.Deleted {
		deleted[seq] = true
	}
	counted := state.Subjects
	for seq, subject := range given {
		if !deleted[seq] && seq >= state.FirstSeq && seq <= state.LastSeq && counted[subject] > 0 {
			counted[subject]--
		}
	}
	for subject, n := range counted {
		kind, token, ok := parseQueueSubject(subject)
		key, err := ingest.ParseToken(token)
		switch {
		case !ok || n == 0:
		case kind == kindJob && err == nil:
			if d.Jobs == nil {
				d.Jobs = map[string]int{}
			}
			d.Jobs[key] += int(n)
		default:
			d.Markers += int(n)
		}
	}
	var newest uint64
	for seq := range given {
		newest = max(newest, seq)
	}
	for seq := state.FirstSeq; seq <= min(newest, state.LastSeq); seq++ {
		if _, there := given[seq]; !there && !deleted[seq] {
			d.Seqs = append(d.Seqs, seq)
		}
	}
	if state.Lost != nil {
		d.Dropped = state.Lost.Bytes
	}
}

// Absence says whether a message that its owner has not deleted is in its stream, and if not, why.
type Absence int

// The absences.
const (
	Present         Absence = iota
	DeletedByOthers         // the stream lists it among the deleted messages
	LostByStore             // the stream counts it, or has no trace of it
	Unexplained             // too much was deleted between the stream's messages to find out
)

// Absence finds out whether a message is in the stream. It asks the stream's leader: a replica that lags may answer
// Get, so a message that Get does not find may be there.
func (p *Partition) Absence(ctx context.Context, seq uint64) (Absence, error) {
	found, err := p.source.fromLeader(ctx, fmt.Sprintf(`{"seq":%d}`, seq))
	if err != nil {
		return Present, fmt.Errorf("message %d of %s: %w", seq, p.source.name, err)
	}
	if found != 0 {
		return Present, nil
	}
	info, err := p.source.details(ctx)
	if err != nil {
		return Present, err
	}
	state := &info.State
	switch {
	case state.Lost != nil && slices.Contains(state.Lost.Msgs, seq), seq > state.LastSeq:
		return LostByStore, nil
	case seq < state.FirstSeq, slices.Contains(state.Deleted, seq):
		return DeletedByOthers, nil
	case state.NumDeleted > mostDeleted:
		return Unexplained, nil
	}
	return LostByStore, nil
}
