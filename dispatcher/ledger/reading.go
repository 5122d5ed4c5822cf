package ledger

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// TailOptions choose the part of the ledger that a Tail reads. All fields but Bounds, Queued and Low are required. The
// goroutine that reads calls the functions.
type TailOptions struct {
	JetStream jetstream.JetStream
	Dedupe    time.Duration // how far back ids may be known
	Bounds    Bounds
	APIs      []string // the apis whose records are read
	// Wants chooses which records of these apis are kept.
	Wants func(api, key string) bool
	// Queued chooses queues by their streams: only records and results of their jobs are kept; nil: those of all
	// queues. A key's records may name a stream that is deleted now, because the api had another number of partitions.
	Queued func(stream string) bool
	// Ended is called with jobs that have ended, at most 1,024 at a time.
	Ended func(api string, jobs []queue.Finished)
	// TATOf returns a record's theoretical arrival time by the reader's clock. stored is when the record was stored.
	// began is the server's time when the reading began.
	TATOf func(c *Record, stored, began time.Time) bucket.Micros
	// Low is called with those kept records whose calls took more than was estimated for them. It may be nil.
	Low func(*Record)
	// Now returns the reader's time.
	Now func() bucket.Micros
}

// Read reads the ledger's end. It keeps the wanted records of the last ten minutes before the newest one, at most
// 500,000, and the ends of jobs as far back as ids are known. It does not read ends again that were read before. It
// reads what the ledger's leader had when the reading began, whichever replica delivers it. It blocks until it has read
// all of that, or ctx ends. It returns the ledger's extent at the beginning. After an error the Tail is unchanged.
func (t *Tail) Read(ctx context.Context, o TailOptions) (Extent, error) {
	o.Bounds = o.Bounds.OrDefault()
	r := &reading{TailOptions: o, concerns: map[string]bool{}, finished: map[string][]queue.Finished{}}
	for _, api := range o.APIs {
		r.concerns[api] = true
	}
	if err := r.run(ctx, t.idsKnown(o.APIs)); err != nil {
		return Extent{}, err
	}
	t.adopt(r, o.Now())
	return r.extent, nil
}

// reading is one reading of the ledger's end.
type reading struct {
	TailOptions
	concerns    map[string]bool // the apis whose records are read
	extent      Extent
	first, last uint64    // sequences of the first and the last record to keep
	seen        uint64    // the last sequence that was read
	gap         bool      // some of the records to keep are missing or cannot be read
	everyID     bool      // ids of all partitions are read, from further back than records are kept
	from        time.Time // every record since then is known; zero: since the ledger's very first
	resultsFrom time.Time // every result since then is known
	old, young  generation
	results     map[string]map[uint64]StoredResult
	finished    map[string][]queue.Finished // by api; not passed to Ended yet
}

// generation is a part of the kept records. If there are too many records, the older generation is dropped.
type generation struct {
	from      time.Time // when its first record was stored
	records   int
	byMessage map[string]map[uint64]LastCall
	tats      map[string]map[string]bucket.Micros
}

// tellAtOnce bounds the ended jobs that one call of Ended gets.
const tellAtOnce = 1024

// run reads the ledger's end, and the results that were stored since shortly before the newest record. idsKnown is the
// sequence of the ledger up to which the ends of all jobs of the apis are known already, 0 for none.
func (r *reading) run(ctx context.Context, idsKnown uint64) error {
	var err error
	if r.extent, err = ExtentOf(ctx, r.JetStream); err != nil {
		return err
	}
	r.from = r.extent.Begins
	newest, _, err := stream.End(ctx, r.JetStream.Conn(), CallsStream, CallSubjects.Below())
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if newest.Seq == 0 {
		return r.readResults(ctx, time.Time{})
	}
	if begin, err := r.begin(ctx, newest, idsKnown); err != nil {
		return fmt.Errorf("ledger: %w", err)
	} else if begin > 0 {
		p := portion{stream: CallsStream, after: begin - 1}
		r.seen = begin - 1
		if err := p.read(ctx, r.JetStream, newest.Seq, r.take); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		r.gap = r.gap || r.seen < newest.Seq
	}
	for api := range r.finished {
		r.tellEnded(api)
	}
	return r.readResults(ctx, newest.Time)
}

// begin decides which records are kept. It returns the sequence from which the ledger is read, 0 if nothing is read.
func (r *reading) begin(ctx context.Context, newest stream.Place, idsKnown uint64) (uint64, error) {
	nc, start := r.JetStream.Conn(), newest.Time.Add(-r.Bounds.Age)
	kept, err := stream.FirstSince(ctx, nc, CallsStream, CallSubjects.Below(), start)
	if err != nil || kept == nil {
		r.from = r.extent.Asked
		return 0, err
	}
	r.first, r.last = kept.Seq, newest.Seq
	if r.from.Before(start) && kept.Seq > 1 {
		r.from = start
	}
	if r.everyID = r.Dedupe > r.Bounds.Age; !r.everyID {
		return r.first, nil
	}
	if idsKnown > 0 && idsKnown <= newest.Seq {
		return min(r.first, idsKnown+1), nil
	}
	ids, err := stream.FirstSince(ctx, nc, CallsStream, CallSubjects.Below(), r.extent.Asked.Add(-r.Dedupe-ServerSkew))
	if err != nil || ids == nil {
		return r.first, err
	}
	return min(r.first, ids.Seq), nil
}

// final is the text by which a record says that its job has ended. Some records are read only to see this. They are
// unmarshalled only if they contain the text.
const final = `"final":true`

func (r *reading) take(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
	at := meta.Sequence.Stream
	r.gap = r.gap || at > r.first && at != r.seen+1
	r.seen = at
	api, token, _ := strings.Cut(strings.TrimPrefix(msg.Subject(), string(CallSubjects)), ".")
	api, err := ingest.ParseToken(api)
	if err != nil || !r.concerns[api] {
		return nil // before the costly unmarshalling
	}
	key, err := ingest.ParseToken(token)
	if err != nil {
		return nil //nolint:nilerr // only weir writes here: it is no record
	}
	kept := at >= r.first && r.Wants(api, key)
	if !kept && (!r.everyID || !bytes.Contains(msg.Data(), []byte(final))) {
		return nil
	}
	c, err := readRecord(msg, meta)
	if err != nil {
		r.gap = r.gap || kept
		return nil //nolint:nilerr // its key is looked up before its first call
	}
	if c.Final && time.Since(c.Accepted) < max(TailAge, r.Dedupe) {
		if r.finished[api] = append(r.finished[api], c.finished()); len(r.finished[api]) >= tellAtOnce {
			r.tellEnded(api)
		}
	}
	if kept && r.keeps(c.Stream) {
		r.keep(c)
	}
	return nil
}

func (r *reading) keeps(stream string) bool { return r.Queued == nil || r.Queued(stream) }

func (r *reading) tellEnded(api string) {
	r.Ended(api, r.finished[api])
	r.finished[api] = r.finished[api][:0]
}

// keep keeps a record. At the bound it drops the older half of the kept records, and advances r.from.
func (r *reading) keep(c *Record) {
	if r.young.records >= max(1, r.Bounds.Records/2) {
		if r.old.records > 0 {
			r.from = r.young.from
		}
		r.old, r.young = r.young, generation{}
	}
	r.young.add(c, r.TATOf(c, c.Stored, r.extent.Asked))
	if r.Low != nil && len(c.Estimated) > 0 {
		r.Low(c)
	}
}

func (g *generation) add(c *Record, tat bucket.Micros) {
	if g.records++; g.records == 1 {
		*g = generation{
			from: c.Stored, records: 1, byMessage: map[string]map[uint64]LastCall{}, tats: map[string]map[string]bucket.Micros{},
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
