package queue

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// No stream has an index by the ids of its jobs, and a queue may hold a million. So the reader keeps a name of each id
// beside the job's sequence: 32 bits of a seeded hash. A search loads only the messages with the name of its id.

// Bounds of a search.
const (
	mostFound = 1000 // jobs that a search returns: one id may occur once for each key

	// mostNamed is how many messages with the name of an id a search loads one by one. If there are more, because one
	// id is used under many keys, the search reads the headers of the queue.
	mostNamed = 100

	// readStep and readSteps bound how long a search waits for the reader.
	readStep  = time.Millisecond
	readSteps = 100
)

// nameSeed is drawn anew by every process, so that no producer can choose ids that have the same name.
var nameSeed = maphash.MakeSeed()

// nameOf returns the name of a job's id; 0 for a marker, which has none.
func nameOf(e *Entry) uint32 {
	if e.Kind != JobEntry {
		return 0
	}
	return nameOfID(e.Header.Get(ingest.HeaderJobID))
}

func nameOfID(id string) uint32 {
	return max(1, uint32(maphash.String(nameSeed, id)&math.MaxUint32)) //nolint:gosec // masked
}

// Find returns the partition's unfinished jobs with the id job: of one key, or of all keys if key is "". It returns at
// most 1,000. However many jobs wait, it loads only jobs with that id, with two exceptions. If the reader has not come
// to the stream's end, Find reads the headers of the rest. If more than 100 jobs have the id, it reads the headers of
// the whole queue. It blocks for some round trips, or until ctx ends.
func (p *Partition) Find(ctx context.Context, job, key string) (found []Entry, err error) {
	found, err = p.find(ctx, job, key)
	if err != nil {
		return nil, fmt.Errorf("search %s: %w", p.source.name, err)
	}
	return found, nil
}

func (p *Partition) find(ctx context.Context, job, key string) (found []Entry, err error) {
	last, needed, err := p.awaitEnd(ctx)
	if err != nil {
		return nil, err
	}
	seqs, read := p.contents.named(job)
	if len(seqs) > mostNamed {
		seqs, read = nil, 0
	}
	for _, seq := range seqs {
		e, err := p.source.standing(ctx, seq)
		if err != nil {
			return nil, err
		}
		if e != nil && e.Header.Get(ingest.HeaderJobID) == job && (key == "" || e.Key == key) {
			found = append(found, *e)
		}
	}
	if read >= needed {
		return found, nil
	}
	token := "*"
	if key != "" {
		token = ingest.Token(key)
	}
	rest := stream.Until{Conn: p.source.nc, Stream: p.source.stream, Last: last, Clear: true}
	rest.From = jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: read + 1, HeadersOnly: true,
		FilterSubjects: []string{p.source.subject(kindJob, token)},
	}
	err = stream.ReadUntil(ctx, rest, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if msg.Headers().Get(ingest.HeaderJobID) != job {
			return nil
		}
		if _, token, ok := parseQueueSubject(msg.Subject()); ok {
			if key, err := ingest.ParseToken(token); err == nil {
				found = append(found, Entry{Key: key, Seq: meta.Sequence.Stream, Header: msg.Headers(), Time: meta.Timestamp})
			}
		}
		if len(found) >= mostFound {
			return stream.ErrEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, stream.ErrEnough) {
		return nil, err
	}
	return found, nil
}

// standing returns a job that the reader has delivered, without its body; nil if the job is no longer in the stream.
func (s *source) standing(ctx context.Context, seq uint64) (*Entry, error) {
	m, err := stream.MessageAt(ctx, s.nc, s.name, seq, func(*stream.LeaderMessage) bool { return true })
	if err != nil || m == nil {
		return nil, err
	}
	_, token, ok := parseQueueSubject(m.Subject)
	key, err := ingest.ParseToken(token)
	if !ok || err != nil {
		return nil, nil //nolint:nilnil,nilerr // it is no job
	}
	header, err := m.Header()
	if err != nil {
		return nil, fmt.Errorf("message %d: %w", seq, err)
	}
	return &Entry{Key: key, Seq: seq, Header: header, Time: m.Time}, nil
}

// awaitEnd waits up to 100 ms until the reader has delivered all messages of the stream. It returns the stream's last
// sequence, and the sequence to which the reader must have come. It asks the stream's leader: with the answer of a
// replica that lags, a search would miss a job that was just accepted.
func (p *Partition) awaitEnd(ctx context.Context) (last, needed uint64, err error) {
	now, err := p.source.js.Stream(ctx, p.source.name)
	if err != nil {
		return 0, 0, err
	}
	if last = now.CachedInfo().State.LastSeq; p.awaitRead(ctx, last) {
		return last, last, nil
	}
	// The stream's last messages may have been deleted before the reader came to them.
	read := p.contents.readTo()
	next, err := p.source.nextAfter(ctx, read)
	if next == 0 {
		return last, read, err
	}
	return last, last, err
}

// awaitRead waits up to 100 ms until the reader has come to a sequence, and reports whether it has. It does not wait
// while the reader is still catching up.
func (p *Partition) awaitRead(ctx context.Context, seq uint64) bool {
	for range readSteps {
		switch {
		case p.contents.readTo() >= seq:
			return true
		case !p.contents.isCaughtUp() || !stream.Sleep(ctx, readStep):
			return false
		}
	}
	return false
}
