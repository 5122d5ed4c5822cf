package dispatcher

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/deadletter"
	"weir/ingest"
)

// TailBounds bound the part of the ledger that is read at the start and at every takeover. What is not read is looked up by its
// key when it matters. The zero value of a field is its default.
type TailBounds struct {
	// Records are kept whole, 500,000; of those before only ids are, of jobs that have ended.
	Records int
	// Age is how far back from the newest record they are read, ten minutes.
	Age time.Duration
	// Leeway is how long before the newest record a result may stand that lacks its own, a minute.
	Leeway time.Duration
}

func (b TailBounds) orDefault() TailBounds {
	return TailBounds{Records: cmp.Or(b.Records, 500_000), Age: cmp.Or(b.Age, tailAge), Leeway: cmp.Or(b.Leeway, resultLeeway)}
}

// tailAge is also how long what times of keys are remembered that have passed.
const tailAge = 10 * time.Minute

// tail is what the newest part of the ledger says: at the start of all partitions, at a takeover of those that are
// taken. It is safe for concurrent use.
type tail struct {
	mu        sync.Mutex
	byMessage map[string]map[uint64]lastCall     // by stream and sequence, until the partition is open
	results   map[string]map[uint64]storedResult // of the last minute, likewise
	tats      map[string]map[string]bucket.Micros
	read      map[string]bucket.Micros // by api: when it was read last
	reach     map[string]reach         // by api
	ids       map[string]uint64        // by api: the ledger's sequence up to which the ends of all its jobs are known
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
	keySum        uint64
}

func newTail() *tail {
	return &tail{
		byMessage: map[string]map[uint64]lastCall{}, results: map[string]map[uint64]storedResult{}, tats: map[string]map[string]bucket.Micros{}, read: map[string]bucket.Micros{},
		reach: map[string]reach{}, ids: map[string]uint64{},
	}
}

// detach gives away what is known of the jobs of a stream, for good: its partition is about to be read.
func (t *tail) detach(stream string) (map[uint64]lastCall, map[uint64]storedResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	records, results := t.byMessage[stream], t.results[stream]
	delete(t.byMessage, stream)
	delete(t.results, stream)
	return records, results
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

// tailReading is one reading of the ledger's end. All fields up to tatOf are required.
type tailReading struct {
	js     jetstream.JetStream
	dedupe time.Duration // how far back ids may be known
	bounds TailBounds    // in full
	// idsKnown is the ledger's sequence up to which the ends of all jobs of the apis are known already, 0 for none.
	idsKnown uint64
	// concerns chooses the apis; wants the records of them that are kept, by api and key.
	concerns func(api string) bool
	wants    func(api, key string) bool
	// ended is told of jobs that have ended, a bounded number at a time.
	ended func(api string, jobs []bucket.Finished)
	// tatOf is a record's theoretical arrival time by the clock of whoever reads, given when the record was stored and
	// the time at the server when the reading began.
	tatOf func(c *CallRecord, stored, began time.Time) bucket.Micros

	began       time.Time // by the server
	begins      time.Time // the ledger; zero where nothing was ever taken from it
	first, last uint64    // of the records that are kept
	everyID     bool      // ids are read of all partitions, and further back than records are kept
	from        time.Time // every record since is known; zero: all there ever were
	resultsFrom time.Time // so is every result
	old, young  generation
	results     map[string]map[uint64]storedResult
	finished    map[string][]bucket.Finished // by api, not told yet
}

// generation is a part of the records that are kept: the older one goes when there are too many.
type generation struct {
	from      time.Time // when the first was stored
	records   int
	byMessage map[string]map[uint64]lastCall
	tats      map[string]map[string]bucket.Micros
}

// tellAtOnce is how many jobs that have ended are told together.
const tellAtOnce = 1024

// run reads the ledger's end: the records of the last ten minutes before the newest one, of which the last 500,000 that are
// wanted are kept, and the ends of jobs as far back as ids are known. What its leader had when it began is read, whichever
// replica delivers it. from tells how far back the records that are kept reach.
func (r *tailReading) run(ctx context.Context) error {
	r.finished = map[string][]bucket.Finished{}
	stream, err := r.js.Stream(ctx, CallsStream)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	info, nc := stream.CachedInfo(), r.js.Conn()
	r.began, r.begins = info.TimeStamp, beginning(info)
	r.from = r.begins
	newest, err := bucket.AskLeader(ctx, nc, CallsStream, `{"last_by_subj":"`+callsPrefix+`>"}`)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if newest == nil {
		return r.readResults(ctx, time.Time{})
	}
	start := newest.Time.Add(-r.bounds.Age)
	if begin, err := r.begin(ctx, nc, start, newest); err != nil {
		return fmt.Errorf("ledger: %w", err)
	} else if begin > 0 {
		err = bucket.ReadUpTo(ctx, bucket.UpTo{
			Conn: nc, Stream: stream, Last: newest.Seq,
			From: jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: begin},
		}, r.take)
		if err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	for api := range r.finished {
		r.tellEnded(api)
	}
	return r.readResults(ctx, newest.Time)
}

// begin is the sequence from which the ledger is read, and settles which of the records are kept.
func (r *tailReading) begin(ctx context.Context, nc *nats.Conn, start time.Time, newest *bucket.LeaderMessage) (uint64, error) {
	kept, err := bucket.FirstSince(ctx, nc, CallsStream, callsPrefix+">", start)
	if err != nil || kept == nil {
		r.from = r.began
		return 0, err
	}
	r.first, r.last = kept.Seq, newest.Seq
	if r.from.Before(start) && kept.Seq > 1 {
		r.from = start
	}
	if r.everyID = r.dedupe > r.bounds.Age; !r.everyID {
		return r.first, nil
	}
	if r.idsKnown > 0 && r.idsKnown <= newest.Seq {
		return min(r.first, r.idsKnown+1), nil
	}
	ids, err := bucket.FirstSince(ctx, nc, CallsStream, callsPrefix+">", r.began.Add(-r.dedupe-serverSkew))
	if err != nil || ids == nil {
		return r.first, err
	}
	return min(r.first, ids.Seq), nil
}

// final is how a record says that its job has ended: records without it, of which only that matters, are not unmarshalled.
const final = `"final":true`

func (r *tailReading) take(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
	api, token, _ := strings.Cut(strings.TrimPrefix(msg.Subject(), callsPrefix), ".")
	api, err := ingest.ParseToken(api)
	if err != nil || !r.concerns(api) {
		return nil // before it is unmarshalled: that is what costs
	}
	key, err := ingest.ParseToken(token)
	if err != nil {
		return nil //nolint:nilerr // nobody but weir writes here: it is no record
	}
	kept := meta.Sequence.Stream >= r.first && r.wants(api, key)
	if !kept && (!r.everyID || !bytes.Contains(msg.Data(), []byte(final))) {
		return nil
	}
	var c CallRecord
	if json.Unmarshal(msg.Data(), &c) != nil {
		return nil
	}
	if c.Final && time.Since(c.Accepted) < max(tailAge, r.dedupe) {
		if r.finished[api] = append(r.finished[api], c.finished()); len(r.finished[api]) >= tellAtOnce {
			r.tellEnded(api)
		}
	}
	if kept {
		r.keep(&c, meta.Timestamp)
	}
	return nil
}

func (r *tailReading) tellEnded(api string) {
	r.ended(api, r.finished[api])
	r.finished[api] = r.finished[api][:0]
}

// keep keeps a record. Beyond the bound the older half of those that are kept goes, and from tells.
func (r *tailReading) keep(c *CallRecord, stored time.Time) {
	if r.young.records >= max(1, r.bounds.Records/2) {
		if r.old.records > 0 {
			r.from = r.young.from
		}
		r.old, r.young = r.young, generation{}
	}
	r.young.add(c, stored, r.tatOf(c, stored, r.began))
}

func (g *generation) add(c *CallRecord, stored time.Time, tat bucket.Micros) {
	if g.records++; g.records == 1 {
		*g = generation{
			from: stored, records: 1, byMessage: map[string]map[uint64]lastCall{}, tats: map[string]map[string]bucket.Micros{},
		}
	}
	records := g.byMessage[c.Stream]
	if records == nil {
		records = map[uint64]lastCall{}
		g.byMessage[c.Stream] = records
	}
	if c.Call >= records[c.Seq].call {
		records[c.Seq] = c.last()
	}
	tats := g.tats[c.API]
	if tats == nil {
		tats = map[string]bucket.Micros{}
		g.tats[c.API] = tats
	}
	tats[c.Key] = max(tats[c.Key], tat)
}

func (c *CallRecord) last() lastCall {
	return lastCall{
		c.Call, c.Attempt, c.Outcome, c.Detail, c.Status, c.Billed, c.Final, c.NotBefore, ingest.StoredID(c.Key, c.Dedupe),
		bucket.MicrosOf(c.Accepted), bucket.KeySum(c.Key),
	}
}

// adopt takes over what a reading found of the apis, and drops what times of keys have passed.
func (t *tail) adopt(r *tailReading, apis []string, now bucket.Micros) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, api := range apis {
		t.read[api] = now
		t.keepReach(r, api, now)
		maps.DeleteFunc(t.tats[api], func(_ string, tat bucket.Micros) bool { return tat < now.Add(-tailAge) })
	}
	for _, g := range []*generation{&r.old, &r.young} {
		for stream := range g.byMessage { // what an earlier reading found of a partition that is read again is outdated
			delete(t.byMessage, stream)
		}
	}
	for _, g := range []*generation{&r.old, &r.young} {
		for stream, records := range g.byMessage {
			t.adoptRecords(stream, records)
		}
		for api, tats := range g.tats {
			if t.tats[api] == nil {
				t.tats[api] = map[string]bucket.Micros{}
			}
			for key, tat := range tats {
				t.tats[api][key] = max(t.tats[api][key], tat)
			}
		}
	}
	maps.Copy(t.results, r.results)
}

func (t *tail) adoptRecords(stream string, records map[uint64]lastCall) {
	known := t.byMessage[stream]
	if known == nil {
		t.byMessage[stream] = records
		return
	}
	for seq, c := range records {
		if c.call >= known[seq].call {
			known[seq] = c
		}
	}
}

// pushedBack reports whether the api said "not now".
func (c *lastCall) pushedBack() bool { return c.outcome == PushedBack }

// lastTAT is the theoretical arrival time in the newest record of a key, however old; 0 when it was never called. Where the
// record is this replica's own, and known is what it knows itself, that stands: exact, and not later each time it is asked.
// drain is how long its bucket takes to empty.
func (l *lane) lastTAT(ctx context.Context, key string, known bucket.Micros, drain time.Duration) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c := CallRecord{API: l.name, Key: key}
	msg, err := bucket.AskLeader(ctx, l.d.opts.Conn, CallsStream, fmt.Sprintf(`{"last_by_subj":%q}`, c.Subject()))
	if err != nil {
		return 0, err
	}
	if msg == nil {
		return l.notRecorded(ctx, drain)
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
