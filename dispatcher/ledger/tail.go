package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/ingest"
)

// Bounds bound the part of the ledger that is read at the start and at every takeover. What is not read is looked up by its
// key when it matters. The zero value of a field is its default.
type Bounds struct {
	// Records are kept whole, 500,000; of those before only ids are, of jobs that have ended.
	Records int
	// Age is how far back from the newest record they are read, ten minutes.
	Age time.Duration
	// Leeway is how long before the newest record a result may stand that lacks its own, a minute.
	Leeway time.Duration
}

// OrDefault are the bounds with a default for each that is 0.
func (b Bounds) OrDefault() Bounds {
	return Bounds{Records: cmp.Or(b.Records, 500_000), Age: cmp.Or(b.Age, TailAge), Leeway: cmp.Or(b.Leeway, ResultLeeway)}
}

// TailAge is also how long what times of keys are remembered that have passed.
const TailAge = 10 * time.Minute

// Tail is what the newest part of the ledger says: at the start of all partitions, at a takeover of those that are
// taken. It is safe for concurrent use.
type Tail struct {
	mu        sync.Mutex
	ByMessage map[string]map[uint64]LastCall     // by stream and sequence, until the partition is open
	results   map[string]map[uint64]StoredResult // of the last minute, likewise
	tats      map[string]map[string]bucket.Micros
	read      map[string]bucket.Micros // by api: when it was read last
	Reach     map[string]Reach         // by api
	ids       map[string]uint64        // by api: the ledger's sequence up to which the ends of all its jobs are known
}

// LastCall is what is kept of a job's newest record.
type LastCall struct {
	Call, Attempt int
	Outcome       string
	Detail        string
	Status        int
	Billed        deadletter.Billed
	Identity      string // of its key, if it may have been processed and another call may follow
	Final         bool
	NotBefore     bucket.Micros
	ID            string // that the job was stored under
	Accepted      bucket.Micros
	KeySum        uint64
	At            uint64 // in the ledger, where the api answered the call
}

// NewTail is a Tail that has read nothing.
func NewTail() *Tail {
	return &Tail{
		ByMessage: map[string]map[uint64]LastCall{}, results: map[string]map[uint64]StoredResult{}, tats: map[string]map[string]bucket.Micros{}, read: map[string]bucket.Micros{},
		Reach: map[string]Reach{}, ids: map[string]uint64{},
	}
}

// Detach gives away what is known of the jobs of a stream, for good: its partition is about to be read.
func (t *Tail) Detach(calls string) (map[uint64]LastCall, map[uint64]StoredResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	records, results := t.ByMessage[calls], t.results[calls]
	delete(t.ByMessage, calls)
	delete(t.results, calls)
	return records, results
}

// TAT is the theoretical arrival time after the newest recorded call of a key, 0 when there is none.
func (t *Tail) TAT(api, key string) bucket.Micros {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tats[api][key]
}

// ReadAt is when the ledger was last read for an api.
func (t *Tail) ReadAt(api string) bucket.Micros {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read[api]
}

// Reading is one reading of the ledger's end. All fields up to TatOf are required.
type Reading struct {
	JetStream jetstream.JetStream
	Dedupe    time.Duration // how far back ids may be known
	Bounds    Bounds        // in full
	// IdsKnown is the ledger's sequence up to which the ends of all jobs of the apis are known already, 0 for none.
	IDsKnown uint64
	// Concerns chooses the apis; wants the records of them that are kept, by api and key.
	Concerns func(api string) bool
	Wants    func(api, key string) bool
	// Ended is told of jobs that have ended, a bounded number at a time.
	Ended func(api string, jobs []queue.Finished)
	// TatOf is a record's theoretical arrival time by the clock of whoever reads, given when the record was stored and
	// the time at the server when the reading began.
	TATOf func(c *Record, stored, began time.Time) bucket.Micros

	Began       time.Time // by the server
	Begins      time.Time // the ledger; zero where nothing was ever taken from it
	first, last uint64    // of the records that are kept
	everyID     bool      // ids are read of all partitions, and further back than records are kept
	from        time.Time // every record since is known; zero: all there ever were
	resultsFrom time.Time // so is every result
	old, young  generation
	results     map[string]map[uint64]StoredResult
	finished    map[string][]queue.Finished // by api, not told yet
}

// generation is a part of the records that are kept: the older one goes when there are too many.
type generation struct {
	from      time.Time // when the first was stored
	records   int
	byMessage map[string]map[uint64]LastCall
	tats      map[string]map[string]bucket.Micros
}

// tellAtOnce is how many jobs that have ended are told together.
const tellAtOnce = 1024

// Run reads the ledger's end: the records of the last ten minutes before the newest one, of which the last 500,000 that are
// wanted are kept, and the ends of jobs as far back as ids are known. What its leader had when it began is read, whichever
// replica delivers it. from tells how far back the records that are kept reach.
func (r *Reading) Run(ctx context.Context) error {
	r.finished = map[string][]queue.Finished{}
	calls, err := r.JetStream.Stream(ctx, CallsStream)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	info, nc := calls.CachedInfo(), r.JetStream.Conn()
	r.Began, r.Begins = info.TimeStamp, Beginning(info)
	r.from = r.Begins
	newest, err := stream.AskLeader(ctx, nc, CallsStream, `{"last_by_subj":"`+CallsPrefix+`>"}`)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if newest == nil {
		return r.readResults(ctx, time.Time{})
	}
	start := newest.Time.Add(-r.Bounds.Age)
	if begin, err := r.begin(ctx, nc, start, newest); err != nil {
		return fmt.Errorf("ledger: %w", err)
	} else if begin > 0 {
		err = stream.ReadUntil(ctx, stream.Until{
			Conn: nc, Stream: calls, Last: newest.Seq,
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
func (r *Reading) begin(ctx context.Context, nc *nats.Conn, start time.Time, newest *stream.LeaderMessage) (uint64, error) {
	kept, err := stream.FirstSince(ctx, nc, CallsStream, CallsPrefix+">", start)
	if err != nil || kept == nil {
		r.from = r.Began
		return 0, err
	}
	r.first, r.last = kept.Seq, newest.Seq
	if r.from.Before(start) && kept.Seq > 1 {
		r.from = start
	}
	if r.everyID = r.Dedupe > r.Bounds.Age; !r.everyID {
		return r.first, nil
	}
	if r.IDsKnown > 0 && r.IDsKnown <= newest.Seq {
		return min(r.first, r.IDsKnown+1), nil
	}
	ids, err := stream.FirstSince(ctx, nc, CallsStream, CallsPrefix+">", r.Began.Add(-r.Dedupe-ServerSkew))
	if err != nil || ids == nil {
		return r.first, err
	}
	return min(r.first, ids.Seq), nil
}

// final is how a record says that its job has ended: records without it, of which only that matters, are not unmarshalled.
const final = `"final":true`

func (r *Reading) take(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
	api, token, _ := strings.Cut(strings.TrimPrefix(msg.Subject(), CallsPrefix), ".")
	api, err := ingest.ParseToken(api)
	if err != nil || !r.Concerns(api) {
		return nil // before it is unmarshalled: that is what costs
	}
	key, err := ingest.ParseToken(token)
	if err != nil {
		return nil //nolint:nilerr // nobody but weir writes here: it is no record
	}
	kept := meta.Sequence.Stream >= r.first && r.Wants(api, key)
	if !kept && (!r.everyID || !bytes.Contains(msg.Data(), []byte(final))) {
		return nil
	}
	var c Record
	if json.Unmarshal(msg.Data(), &c) != nil {
		return nil
	}
	if c.Final && time.Since(c.Accepted) < max(TailAge, r.Dedupe) {
		if r.finished[api] = append(r.finished[api], c.finished()); len(r.finished[api]) >= tellAtOnce {
			r.tellEnded(api)
		}
	}
	if c.At = meta.Sequence.Stream; kept {
		r.keep(&c, meta.Timestamp)
	}
	return nil
}

func (r *Reading) tellEnded(api string) {
	r.Ended(api, r.finished[api])
	r.finished[api] = r.finished[api][:0]
}

// keep keeps a record. Beyond the bound the older half of those that are kept goes, and from tells.
func (r *Reading) keep(c *Record, stored time.Time) {
	if r.young.records >= max(1, r.Bounds.Records/2) {
		if r.old.records > 0 {
			r.from = r.young.from
		}
		r.old, r.young = r.young, generation{}
	}
	r.young.add(c, stored, r.TATOf(c, stored, r.Began))
}

func (g *generation) add(c *Record, stored time.Time, tat bucket.Micros) {
	if g.records++; g.records == 1 {
		*g = generation{
			from: stored, records: 1, byMessage: map[string]map[uint64]LastCall{}, tats: map[string]map[string]bucket.Micros{},
		}
	}
	records := g.byMessage[c.Stream]
	if records == nil {
		records = map[uint64]LastCall{}
		g.byMessage[c.Stream] = records
	}
	if c.Call >= records[c.Seq].Call {
		records[c.Seq] = c.Last()
	}
	tats := g.tats[c.API]
	if tats == nil {
		tats = map[string]bucket.Micros{}
		g.tats[c.API] = tats
	}
	tats[c.Key] = max(tats[c.Key], tat)
}

// Last is what is kept of the record in memory.
func (c *Record) Last() LastCall {
	at := c.At
	if c.Status == 0 {
		at = 0
	}
	last := LastCall{
		c.Call, c.Attempt, c.Outcome, c.Detail, c.Status, c.Billed, "", c.Final, c.NotBefore, ingest.StoredID(c.Key, c.Dedupe),
		bucket.MicrosOf(c.Accepted), queue.KeySum(c.Key), at,
	}
	if !c.Final && c.Billed != deadletter.NotBilled {
		last.Identity = c.Idempotency // few need it, and half a million records are kept
	}
	return last
}

// Adopt takes over what a reading found of the apis, and drops what times of keys have passed.
func (t *Tail) Adopt(r *Reading, apis []string, now bucket.Micros) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, api := range apis {
		t.read[api] = now
		t.keepReach(r, api, now)
		maps.DeleteFunc(t.tats[api], func(_ string, tat bucket.Micros) bool { return tat < now.Add(-TailAge) })
	}
	for _, g := range []*generation{&r.old, &r.young} {
		for calls := range g.byMessage { // what an earlier reading found of a partition that is read again is outdated
			delete(t.ByMessage, calls)
		}
	}
	for _, g := range []*generation{&r.old, &r.young} {
		for calls, records := range g.byMessage {
			t.adoptRecords(calls, records)
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

func (t *Tail) adoptRecords(calls string, records map[uint64]LastCall) {
	known := t.ByMessage[calls]
	if known == nil {
		t.ByMessage[calls] = records
		return
	}
	for seq, c := range records {
		if c.Call >= known[seq].Call {
			known[seq] = c
		}
	}
}

// PushedBack reports whether the api said "not now".
func (c *LastCall) PushedBack() bool { return c.Outcome == PushedBack }
