package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoLedger says that no call was ever recorded on a server.
var ErrNoLedger = errors.New("there is no ledger: weir has not run on this server")

// portion is a part of the ledger or of the results: the messages of some subjects from one place to another.
type portion struct {
	stream   string
	subject  string    // "": all subjects, or those in subjects
	subjects []string  // read together if subject is ""
	since    time.Time // only messages that the server stored at this time or later; zero: see after
	after    uint64    // only messages behind this sequence, if since is zero
	upTo     uint64    // no message behind this sequence; 0: up to the newest
	bare     bool      // the messages are read without their bodies
}

// from returns the consumer configuration that reads the portion.
func (p *portion) from() jetstream.OrderedConsumerConfig {
	cfg := jetstream.OrderedConsumerConfig{HeadersOnly: p.bare}
	if cfg.FilterSubjects = p.subjects; p.subject != "" {
		cfg.FilterSubjects = []string{p.subject}
	}
	if p.since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, p.after+1
	} else {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &p.since
	}
	return cfg
}

// read calls take with the portion's messages up to the sequence last, in order, until take fails. It reads all those
// that the stream's leader has, whichever replica delivers them. It blocks until all are read, or ctx ends. If last is
// 0, there is nothing to read.
func (p *portion) read(ctx context.Context, js jetstream.JetStream, last uint64, take func(jetstream.Msg, *jetstream.MsgMetadata) error) error {
	if last == 0 || p.since.IsZero() && last <= p.after {
		return nil
	}
	source, err := js.Stream(ctx, p.stream)
	if err != nil {
		return err
	}
	return stream.ReadUntil(ctx, stream.Until{Conn: js.Conn(), Stream: source, From: p.from(), Last: last}, take)
}

// newest asks the stream's leader for the sequence of the newest message of the portion's subjects. It returns 0 if
// there is no message.
func (p *portion) newest(ctx context.Context, js jetstream.JetStream) (newest uint64, err error) {
	subjects := p.subjects
	if p.subject != "" || len(subjects) == 0 {
		subjects = []string{p.subject}
	}
	for _, subject := range subjects {
		last, err := stream.LastOf(ctx, js.Conn(), p.stream, subject)
		if err != nil {
			return 0, err
		}
		newest = max(newest, last)
	}
	return newest, nil
}

// readAll calls read for the whole portion: up to the newest message of its subjects, but not beyond p.upTo if that is
// set.
func (p *portion) readAll(ctx context.Context, js jetstream.JetStream, take func(jetstream.Msg, *jetstream.MsgMetadata) error) error {
	last, err := p.newest(ctx, js)
	if err != nil {
		return err
	}
	if p.upTo > 0 {
		last = min(last, p.upTo)
	}
	return p.read(ctx, js, last, take)
}

// follow calls take with the portion's messages, first those that are there, and then those that come. It ends when
// take fails, ctx ends or the stream breaks.
func (p *portion) follow(ctx context.Context, js jetstream.JetStream, take func(jetstream.Msg) error) error {
	source, err := js.Stream(ctx, p.stream)
	if err != nil {
		return err
	}
	return stream.Follow(ctx, source, p.from(), take)
}

// Filter chooses records. The zero value chooses all.
type Filter struct {
	API   string
	APIs  []string  // only for Read without an API: records of these apis; none: of all apis
	Key   string    // only with an API
	Since time.Time // only records stored at this time or later
	UpTo  uint64    // no record behind this sequence; 0: up to the newest
}

// End returns the sequence of the newest record, at least 1. Several readings with this Filter.UpTo end at the same
// record. End fails with ErrNoLedger if there is no ledger.
func End(ctx context.Context, js jetstream.JetStream) (uint64, error) {
	if _, err := js.Stream(ctx, CallsStream); errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, ErrNoLedger
	}
	last, err := stream.LastOf(ctx, js.Conn(), CallsStream, CallSubjects.Below())
	if err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	return max(last, 1), nil
}

func (f *Filter) subject() string {
	switch {
	case f.API == "":
		return CallSubjects.Below()
	case f.Key == "":
		return CallsOf(f.API)
	}
	return (&Record{API: f.API, Key: f.Key}).Subject()
}

// Read calls take with every record that f chooses and that is there when Read begins. It does so in the order in which
// the records were stored, which is about the order in which the calls ended. read and of report the progress. Read
// ends when take fails. It leaves out and counts records that cannot be read. If f names no apis, it also counts records
// that are missing between others. It fails with ErrNoLedger if there is no ledger. It blocks until all are read, or
// ctx ends.
func Read(ctx context.Context, js jetstream.JetStream, f Filter, take func(c *Record, read, of uint64) error) (unreadable int, err error) {
	p, read := portion{stream: CallsStream, subject: f.subject(), since: f.Since, upTo: f.UpTo}, uint64(0)
	ofAll := f.API == "" && len(f.APIs) == 0
	if f.API == "" {
		p.subject, p.subjects = "", choose(f.APIs)
	}
	if _, err := js.Stream(ctx, CallsStream); errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, ErrNoLedger
	}
	seen := uint64(0)
	err = p.readAll(ctx, js, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		read++
		if f.API == "" && !isOf(f.APIs, msg.Subject()) {
			return nil
		}
		if at := meta.Sequence.Stream; ofAll {
			if seen != 0 && at > seen+1 {
				unreadable += int(at - seen - 1) //nolint:gosec // only the server deletes records, the oldest first
			}
			seen = at
		}
		c, err := readRecord(msg, meta)
		if err != nil {
			unreadable++
			return nil //nolint:nilerr // it is counted
		}
		return take(c, read, read+meta.NumPending)
	})
	if err != nil {
		return unreadable, fmt.Errorf("read the ledger: %w", err)
	}
	return unreadable, nil
}

// Charges chooses the records of some apis that are behind the sequence After of the ledger, up to Last.
type Charges struct {
	APIs        []string // none: of all apis
	After, Last uint64
	Whole       bool // records of all apis are read, and one that is missing between them counts as unreadable
}

// mostChosen bounds the apis whose records the server selects. If there are more, Read and ReadCharges read the records
// of all apis, and select from them.
const mostChosen = 64

// choose returns subjects that include all records of these apis. Without apis it returns the subject of all records.
func choose(apis []string) (subjects []string) {
	if len(apis) == 0 || len(apis) > mostChosen {
		return []string{CallSubjects.Below()}
	}
	for _, api := range apis {
		subjects = append(subjects, CallsOf(api))
	}
	return subjects
}

// isOf reports whether a record's subject belongs to one of these apis. Without apis it returns true.
func isOf(apis []string, subject string) bool {
	return len(apis) == 0 || slices.ContainsFunc(apis, func(api string) bool {
		return strings.HasPrefix(subject, strings.TrimSuffix(CallsOf(api), ">"))
	})
}

// Damage is the first record in a reading that is missing or cannot be read. Its error is an ErrUnreadable.
type Damage struct {
	Seq uint64
	Err error
}

func (d *Damage) Error() string { return d.Err.Error() }

func (d *Damage) Unwrap() error { return d.Err }

// missing returns the Damage of a record that is not there.
func missing(seq uint64) *Damage {
	return &Damage{seq, fmt.Errorf("%w: number %d is missing", ErrUnreadable, seq)}
}

// ReadCharges calls take with each record that o chooses, in order. It fails with a *Damage at the first record that it
// cannot read. If o.Whole is set, it also fails at the first record that is missing. It blocks until all are read, or
// ctx ends.
func ReadCharges(ctx context.Context, js jetstream.JetStream, o Charges, take func(c *Record, seq uint64)) error {
	p := portion{stream: CallsStream, subjects: choose(o.APIs), after: o.After}
	if o.Whole {
		p.subjects = choose(nil)
	}
	newest, err := p.newest(ctx, js)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	seen := o.After
	err = p.read(ctx, js, min(newest, o.Last), func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if o.Whole && meta.Sequence.Stream != seen+1 {
			return missing(seen + 1)
		}
		if seen = meta.Sequence.Stream; !isOf(o.APIs, msg.Subject()) {
			return nil
		}
		c, err := readRecord(msg, meta)
		if err != nil {
			return &Damage{seen, err}
		}
		take(c, c.At)
		return nil
	})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if o.Whole && seen < o.Last {
		return fmt.Errorf("ledger: %w", missing(seen+1))
	}
	return nil
}

// ReadSince calls take with the records that a redrive asks for, in the order in which they were stored. It returns the
// sequence up to which it has read them. If the ledger does not reach to q.After, it has lost its end, and ReadSince
// reads the whole ledger. It leaves out records that cannot be read. If there is no ledger, there are no records. It
// blocks until all are read, or ctx ends.
func ReadSince(ctx context.Context, js jetstream.JetStream, q deadletter.CallsQuery, take func(deadletter.Trace)) (upTo uint64, err error) {
	source, err := js.Stream(ctx, CallsStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	last := source.CachedInfo().State.LastSeq
	if last == q.After && q.Since.IsZero() {
		return last, nil
	}
	p := portion{since: q.Since, after: q.After}
	if last < q.After {
		p.after = 0
	}
	from := p.from()
	from.FilterSubjects = []string{CallsOf(q.API)}
	if q.Keys != nil {
		from.FilterSubjects = nil
		for _, key := range q.Keys {
			from.FilterSubjects = append(from.FilterSubjects, (&Record{API: q.API, Key: key}).Subject())
		}
	}
	err = stream.ReadUntil(ctx, stream.Until{Conn: js.Conn(), Stream: source, From: from, Last: last, Clear: true}, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if c, err := readRecord(msg, meta); err == nil {
			take(deadletter.Trace{Key: c.Key, Job: c.Job, Redrives: c.Redrives, From: c.From, Origin: c.Origin(), Accepted: c.Accepted, Stored: c.Stored})
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	return last, nil
}
