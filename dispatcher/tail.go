package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/deadletter"
	"weir/ingest"
)

// Bounds of the part of the ledger that is read at the start and at every takeover.
const (
	maxTail = 500_000 // records
	tailAge = 10 * time.Minute
)

// tail is what the newest part of the ledger says: at the start of all partitions, at a takeover of those that are
// taken. It is safe for concurrent use.
type tail struct {
	mu        sync.Mutex
	byMessage map[string]map[uint64]lastCall     // by stream and sequence, until the partition is open
	results   map[string]map[uint64]storedResult // of the last minute, likewise
	tats      map[string]map[string]bucket.Micros
	read      map[string]bucket.Micros // by api: when it was read last
}

// lastCall is what is kept of a job's newest record.
type lastCall struct {
	call, attempt int
	outcome       string
	detail        string
	status        int
	billed        deadletter.Billed
	final         bool
	notBefore     bucket.Micros
	id            string // that the job was stored under
	accepted      bucket.Micros
}

func newTail() *tail {
	return &tail{
		byMessage: map[string]map[uint64]lastCall{}, results: map[string]map[uint64]storedResult{}, tats: map[string]map[string]bucket.Micros{}, read: map[string]bucket.Micros{},
	}
}

// last is the newest record of the job that stands at this sequence of its stream.
func (t *tail) last(stream string, seq uint64) (lastCall, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.byMessage[stream][seq]
	return c, ok
}

// meets compares a message with the record and the result of its sequence, and forgets what is of another job: somebody has
// deleted the stream since, and a new one counts from 1 again, or the server lost its last writes.
func (t *tail) meets(stream string, e bucket.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stored := bucket.MicrosOf(e.Time)
	if c, ok := t.byMessage[stream][e.Seq]; ok && (c.id != e.Header.Get(ingest.HeaderMsgID) || c.accepted != stored) {
		delete(t.byMessage[stream], e.Seq)
	}
	if r, ok := t.results[stream][e.Seq]; ok && !r.of(e) {
		delete(t.results[stream], e.Seq)
	}
}

// settled forgets the records of a partition that is open.
func (t *tail) settled(stream string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byMessage, stream)
	delete(t.results, stream)
}

// tat is the theoretical arrival time after the newest recorded call of a key, 0 when there is none.
func (t *tail) tat(api, key string) bucket.Micros {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tats[api][key]
}

// readAt is when the ledger was last read for an api.
func (t *tail) readAt(api string) bucket.Micros {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read[api]
}

// tailReading is one reading of the ledger's end.
type tailReading struct {
	js     jetstream.JetStream
	dedupe time.Duration
	// wants chooses the records, by api and key; nil wants all.
	wants func(api, key string) bool
	// tatOf is a record's theoretical arrival time by the clock of whoever reads, given when the record was stored and
	// the time at the server when the reading began.
	tatOf func(c *CallRecord, stored, began time.Time) bucket.Micros

	byMessage map[string]map[uint64]lastCall
	results   map[string]map[uint64]storedResult
	tats      map[string]map[string]bucket.Micros
	finished  map[string][]bucket.Finished // by api: jobs whose ids are still known
}

// run reads the ledger's last records: those of the dedupe time before its last one, and of ten minutes at least, but no
// more than the last 500,000. What its leader had when it began is read, whichever replica delivers it.
func (r *tailReading) run(ctx context.Context) error {
	r.byMessage, r.tats = map[string]map[uint64]lastCall{}, map[string]map[string]bucket.Micros{}
	r.finished = map[string][]bucket.Finished{}
	stream, err := r.js.Stream(ctx, CallsStream)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	info := stream.CachedInfo()
	newest, err := bucket.AskLeader(ctx, r.js.Conn(), CallsStream, `{"last_by_subj":"`+callsPrefix+`>"}`)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if newest == nil {
		return r.readResults(ctx, time.Time{})
	}
	err = readUpTo(ctx, stream, r.from(info.State, newest), newest.Seq, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
		r.take(msg, meta.Timestamp, info.TimeStamp)
	})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return r.readResults(ctx, newest.Time)
}

// readUpTo gives the messages of a stream to take, in order, up to the one at last. It blocks until then, or ctx ends.
func readUpTo(
	ctx context.Context, stream jetstream.Stream, from jetstream.OrderedConsumerConfig, last uint64,
	take func(msg jetstream.Msg, meta *jetstream.MsgMetadata),
) error {
	consumer, err := stream.OrderedConsumer(ctx, from)
	if err != nil {
		return err
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(1000), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return err
	}
	defer msgs.Stop()
	for {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		switch {
		case errors.Is(err, jetstream.ErrNoHeartbeat) && ctx.Err() == nil:
			continue // it sets itself up anew
		case err != nil:
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		take(msg, meta)
		if meta.Sequence.Stream >= last {
			return nil
		}
	}
}

func (r *tailReading) from(state jetstream.StreamState, newest *bucket.LeaderMessage) jetstream.OrderedConsumerConfig {
	first := max(state.FirstSeq, 1)
	if newest.Seq-min(first, newest.Seq) >= maxTail {
		first = newest.Seq - maxTail + 1
	} else if start := newest.Time.Add(-max(tailAge, r.dedupe)); state.FirstTime.Before(start) {
		return jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &start}
	}
	return jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first}
}

func (r *tailReading) take(msg jetstream.Msg, stored, began time.Time) {
	if r.wants != nil {
		api, token, _ := strings.Cut(strings.TrimPrefix(msg.Subject(), callsPrefix), ".")
		if key, err := ingest.ParseToken(token); err != nil || !r.wants(api, key) {
			return // before it is unmarshalled: that is what costs
		}
	}
	var c CallRecord
	if json.Unmarshal(msg.Data(), &c) == nil {
		r.add(&c, stored, began)
	}
}

func (r *tailReading) add(c *CallRecord, stored, began time.Time) {
	if f := c.finished(r.dedupe); c.Final && time.Now().Before(f.Until) {
		r.finished[c.API] = append(r.finished[c.API], f)
	}
	records := r.byMessage[c.Stream]
	if records == nil {
		records = map[uint64]lastCall{}
		r.byMessage[c.Stream] = records
	}
	if c.Call >= records[c.Seq].call {
		records[c.Seq] = lastCall{
			c.Call, c.Attempt, c.Outcome, c.Detail, c.Status, c.Billed, c.Final, c.NotBefore, ingest.StoredID(c.Key, c.Dedupe),
			bucket.MicrosOf(c.Accepted),
		}
	}
	tats := r.tats[c.API]
	if tats == nil {
		tats = map[string]bucket.Micros{}
		r.tats[c.API] = tats
	}
	tats[c.Key] = max(tats[c.Key], r.tatOf(c, stored, began))
}

// adopt takes over what a reading found, and drops what times of keys have passed.
func (t *tail) adopt(r *tailReading, apis []string, now bucket.Micros) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.byMessage, r.byMessage)
	maps.Copy(t.results, r.results)
	for _, api := range apis {
		t.read[api] = now
		maps.DeleteFunc(t.tats[api], func(_ string, tat bucket.Micros) bool { return tat < now.Add(-tailAge) })
	}
	for api, tats := range r.tats {
		if t.tats[api] == nil {
			t.tats[api] = map[string]bucket.Micros{}
		}
		for key, tat := range tats {
			t.tats[api][key] = max(t.tats[api][key], tat)
		}
	}
}

// pushedBack reports whether the api said "not now".
func (c *lastCall) pushedBack() bool { return c.outcome == PushedBack }

// lastTAT is the theoretical arrival time in the newest record of a key, however old; 0 when there is none. Where the
// record is this replica's own, and known is what it knows itself, that stands: exact, and not later each time it is asked.
func (l *lane) lastTAT(ctx context.Context, key string, known bucket.Micros) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c := CallRecord{API: l.name, Key: key}
	msg, err := bucket.AskLeader(ctx, l.d.opts.Conn, CallsStream, fmt.Sprintf(`{"last_by_subj":%q}`, c.Subject()))
	if err != nil || msg == nil {
		return 0, err
	}
	if err := json.Unmarshal(msg.Data, &c); err != nil {
		return 0, fmt.Errorf("ledger: record %d: %w", msg.Seq, err)
	}
	switch {
	case l.d.owner == nil:
		return c.TAT, nil
	case known != 0 && c.Instance == l.d.opts.Instance:
		return known, nil
	}
	stream, err := l.d.opts.JetStream.Stream(ctx, CallsStream)
	if err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	return l.inherit(&c, msg.Time, stream.CachedInfo().TimeStamp), nil
}

func isNotFound(err error) bool { return errors.Is(err, jetstream.ErrMsgNotFound) }
