package deadletter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"weir/bucket"
	"weir/bucket/queue"
	"weir/ingest"
)

// MaxRedrive bounds the letters that one redrive plans. A redrive keeps about 40 bytes of each in memory.
const MaxRedrive = 1_000_000

// Skip says why a redrive skips a letter: a closed set.
type Skip string

// The reasons for skipping a letter.
const (
	SkipUnknown     Skip = "unknown"      // its call may have been processed, and another one would be billed again
	SkipCancelled   Skip = "cancelled"    // an operator cancelled its job, and no operator has named the letter
	SkipDeadline    Skip = "deadline"     // its deadline has passed
	SkipResubmitted Skip = "resubmitted"  // its producer has sent the same job more than once, and a queue took it
	SkipSameID      Skip = "same_id"      // another job with the same id came later, and has a letter too
	SkipNoBody      Skip = "no_body"      // the body was too large to store, or was lost with the store of its queue
	SkipNoAPI       Skip = "no_api"       // its api is not configured
	SkipNoKey       Skip = "no_key"       // the letter names no key
	SkipForeign     Skip = "not_a_letter" // weir did not write it
)

// UnknownPolicy says what to do with a letter whose call may have been processed.
type UnknownPolicy int

// The policies for letters whose calls may have been processed.
const (
	SkipUnknowns UnknownPolicy = iota
	IncludeUnknowns
	FoundUnprocessed // the api has said that the last calls were not processed, so nothing is unknown any more
)

// CancelledPolicy says what to do with the letter of a cancelled job.
type CancelledPolicy int

// The policies for cancelled jobs.
const (
	SkipCancelleds    CancelledPolicy = iota
	IncludeCancelleds                 // an operator has named the letters
)

// DeadlinePolicy says what to do with a letter's deadline.
type DeadlinePolicy int

// The policies for deadlines.
const (
	KeepDeadline DeadlinePolicy = iota // a letter whose deadline has passed stays
	DropDeadline
)

// CallsQuery chooses calls of an api's keys. Nil Keys choose all keys.
type CallsQuery struct {
	API   string
	Keys  []string
	Since time.Time // recorded at this time or later; zero: see After
	After uint64    // after this sequence of the ledger; all calls if the ledger has lost records since
}

// CallsReader passes the calls that q chooses to take. It returns the sequence up to which it has read the ledger.
type CallsReader func(ctx context.Context, q CallsQuery, take func(Trace)) (upTo uint64, err error)

// Passed is a redrive's progress, from which another process can continue.
type Passed struct {
	Next  uint64 // all letters before this number are done
	Paced time.Time
	Tally Tally
}

// RedriveOptions configure a redrive. All fields are required except Unknown, Cancelled, Deadline, Priority, Edit,
// Before, NotBefore and Passed.
type RedriveOptions struct {
	Conn    *nats.Conn
	Browser *Browser
	Terms   func(api string) (Terms, bool) // the current terms of an api; false if it is not configured
	Calls   CallsReader
	Unknown UnknownPolicy
	// Cancelled says what to do with the letters of cancelled jobs.
	Cancelled CancelledPolicy
	// Deadline says what to do with letters whose deadline has passed.
	Deadline DeadlinePolicy
	// Priority is the priority of all redriven jobs. Nil keeps each job's own.
	Priority *ingest.Priority
	Rate     bucket.Rate // of publishing; its burst is not used
	// Edit changes the one letter that is redriven. Nil means no change.
	Edit *Edit
	// Before counts what an earlier process has done of this redrive. NotBefore is the time before which the first
	// letter must not be published.
	Before    Tally
	NotBefore time.Time
	// Passed is called with the progress after each chunk of letters. The redrive waits until it returns, and ends if
	// it fails. Nil means that no other process will continue the redrive.
	Passed func(ctx context.Context, p Passed) error
	// Valid reports whether this process still is the only one that may redrive. It is called before every letter.
	Valid func() bool
	// Progress is called with the counts after every letter, by one goroutine at a time.
	Progress func(t *Tally)
}

// Redrive redrives the letters of a scope. Use it once, from one goroutine.
type Redrive struct {
	opts     RedriveOptions
	scope    *Scope
	found    histories
	looks    map[string]*look // by api
	lookedUp uint64           // the letters with smaller numbers were looked up

	mu     sync.Mutex        // guards agreed
	agreed map[string]*Terms // by api, of those met since the look-up; nil: not configured
}

// every returns the time between two letters.
func (o *RedriveOptions) every() time.Duration {
	return o.Rate.Per / time.Duration(max(1, o.Rate.Count))
}

// Plan says what a redrive would do.
type Plan struct {
	Letters int // to be published
	Keys    int
	Oldest  time.Time // when the oldest of them was stored
	Cost    int64     // of one call each, in millionths

	BilledBefore     int   // of Letters, those with a call that was charged
	BilledBeforeCost int64 // what they would cost again, in millionths
	MaybeBilled      int   // letters whose calls may have been charged

	Settled  int          // letters whose jobs were redriven already: to be deleted, not published
	Skipped  map[Skip]int // left alone
	NoRoom   int64        // letters that would find no room now if all came at once
	Overflow int64        // letters without room at the given rate, by the limits of keys and the shared limits
	Roomy    *bucket.Rate // if Overflow is not 0: a rate at which none should overflow; nil: there is none

	Publishing time.Duration // at the given rate
	Draining   time.Duration // until the last job is called, by the limits alone
	Slowest    string        // the limit that determines Draining
}

// Duration returns the time until the last letter's job is called.
func (p *Plan) Duration() time.Duration { return max(p.Publishing, p.Draining) }

// Found reports whether the selection has any letters.
func (p *Plan) Found() bool { return p.Letters+p.Settled+len(p.Skipped) > 0 }

// NewRedrive returns a redrive of a scope.
func NewRedrive(scope *Scope, o RedriveOptions) *Redrive {
	if o.Conn == nil || o.Browser == nil || o.Terms == nil || o.Calls == nil || o.Valid == nil || o.Progress == nil {
		panic("deadletter: NewRedrive without all that it needs")
	}
	return &Redrive{opts: o, scope: scope, agreed: map[string]*Terms{}}
}

// Scope returns the letters of the redrive.
func (r *Redrive) Scope() *Scope { return r.scope }

// Order returns a task's order with the parameters of the redrive.
func (r *Redrive) Order(o TaskOrder) TaskOrder {
	o.IncludeUnknown, o.IncludeCancelled = r.opts.Unknown == IncludeUnknowns, r.opts.Cancelled == IncludeCancelleds
	o.DropDeadline, o.Edit = r.opts.Deadline == DropDeadline, r.opts.Edit
	if r.opts.Priority != nil {
		o.Priority = r.opts.Priority.String()
	}
	return o
}

// Plan reads the letters and what happened to their jobs since. It changes nothing.
func (r *Redrive) Plan(ctx context.Context) (*Plan, error) {
	now := time.Now()
	all, err := r.gather(ctx, 0, MaxRedrive)
	if err != nil {
		return nil, err
	}
	if !all {
		return nil, fmt.Errorf("more than %d letters match: choose fewer, by --key, --since or --until", MaxRedrive)
	}
	p, loads := &Plan{Skipped: map[Skip]int{}}, map[string]*load{}
	err = r.eachHeader(ctx, 0, func(k *Kept) (more bool) { r.count(p, loads, k, now); return true })
	if err != nil {
		return nil, err
	}
	return p, r.forecast(ctx, p, loads)
}

// windowLetters is how many letters a redrive without a plan looks up at a time. It keeps about 100 bytes of each in
// memory.
const windowLetters = 100_000

// lookUp finds out what happened to the jobs of the next letters, unless that was done already. It looks up at most
// windowLetters.
func (r *Redrive) lookUp(ctx context.Context, next uint64) error {
	if r.lookedUp > next {
		return nil
	}
	_, err := r.gather(ctx, next, windowLetters)
	return err
}

// gather finds out what happened to the jobs of up to most letters, from a number on. It returns false if there are
// more.
func (r *Redrive) gather(ctx context.Context, from uint64, most int) (all bool, err error) {
	where, now := historyScope{}, time.Now()
	r.agreed = map[string]*Terms{}
	r.found, r.looks, all, r.lookedUp = histories{jobs: map[identity]jobHistory{}}, nil, true, maxSeq
	err = r.eachHeader(ctx, from, func(k *Kept) (more bool) {
		terms, skip := r.exclude(k, now)
		if skip != "" {
			return true
		}
		if len(r.found.jobs) >= most {
			all, r.lookedUp = false, k.Seq
			return false
		}
		r.found.add(k, terms.Dedupe)
		where.add(k, terms.Dedupe)
		return true
	})
	if err != nil || len(where) == 0 {
		return all, err
	}
	r.looks, err = r.found.trace(ctx, r.opts.Browser, r.opts.Calls, where)
	return all, err
}

// eachHeader passes the letters from a number on to take, without their bodies, until take returns false.
func (r *Redrive) eachHeader(ctx context.Context, from uint64, take func(k *Kept) (more bool)) error {
	walk := r.scope.between(from, maxSeq).Walk(HeadersOnly)
	for {
		chunk, err := walk.Chunk(ctx)
		if err != nil || len(chunk) == 0 {
			return err
		}
		for i := range chunk {
			r.address(&chunk[i])
			if !take(&chunk[i]) {
				return nil
			}
		}
	}
}

// address gives a letter of an unknown api the api that its producer named, if that is configured now. The letter's
// place in the stream does not change.
func (r *Redrive) address(k *Kept) {
	if k.API != "" || k.AskedAPI == "" {
		return
	}
	if _, configured := r.terms(k.AskedAPI); configured {
		k.API = k.AskedAPI
	}
}

// terms returns the terms that an api had when its letters were looked up.
func (r *Redrive) terms(api string) (Terms, bool) {
	if api == "" {
		return Terms{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	terms, met := r.agreed[api]
	if !met {
		if now, configured := r.opts.Terms(api); configured {
			terms = &now
		}
		r.agreed[api] = terms
	}
	if terms == nil {
		return Terms{}, false
	}
	return *terms, true
}

// sameTerms returns ErrTerms if the terms that decide about an api's letters have changed since the look-up.
func (r *Redrive) sameTerms(api string) error {
	then, known := r.terms(api)
	now, configured := Terms{}, false
	if api != "" {
		now, configured = r.opts.Terms(api)
	}
	same := then.Idempotent == now.Idempotent && then.Keyed == now.Keyed && then.KnowsKeys == now.KnowsKeys &&
		then.Key == now.Key && then.Dedupe == now.Dedupe
	if known != configured || known && !same {
		return ErrTerms
	}
	return nil
}

// exclude returns the terms of a letter's api, and why the letter is not redriven, as far as the letter itself shows.
// It returns "" if the letter may be redriven.
func (r *Redrive) exclude(k *Kept, now time.Time) (Terms, Skip) {
	terms, configured := r.terms(k.API)
	switch {
	case k.JobID == "" || k.Reason == "":
		return terms, SkipForeign
	case k.BodyLeftOut:
		return terms, SkipNoBody
	case !configured:
		return terms, SkipNoAPI
	case terms.keyInSubject() && k.Key == "":
		return terms, SkipNoKey
	case r.opts.Cancelled == SkipCancelleds && k.Reason == Cancelled:
		return terms, SkipCancelled
	case r.opts.Unknown == SkipUnknowns && unsafeToRepeat(k, r.termsFor(&terms), now):
		return terms, SkipUnknown
	case r.opts.Deadline == KeepDeadline && !k.Deadline().IsZero() && !k.Deadline().After(now):
		return terms, SkipDeadline
	}
	return terms, ""
}

// termsFor returns an api's terms for this redrive. An edited letter is a different request under the same idempotency
// key, so the key does not make it safe to repeat.
func (r *Redrive) termsFor(terms *Terms) *Terms {
	if r.opts.Edit == nil {
		return terms
	}
	edited := *terms
	edited.Idempotent = false
	return &edited
}

// unsafeToRepeat reports whether a call of the job may have been processed, and another call may be billed again.
//
// A letter with the reason unknown always is: its call carried no idempotency key that the api was sure to recognise,
// whatever the configuration says now. Other letters say how and since when their calls carried the key, if that is
// known. If it is not known, an api that forgets keys may have forgotten this one. A redriven job that says nothing
// about keys may have been a letter with the reason unknown. The operator then agreed to repeat its call once, not
// twice. The exception is a job that was charged for and rejected: its call is over, and the operator asks for another
// one.
func unsafeToRepeat(k *Kept, terms *Terms, now time.Time) bool {
	recognised := SameKey(k.Keyed, terms.Keyed)
	if k.Keyed == "" {
		recognised = k.Redrives == 0
	}
	recognised = recognised && !KeyForgotten(k.Keyed, terms.KnowsKeys, now.Add(KeyMargin))
	switch {
	case k.Reason == Unknown:
		return true
	case terms.Idempotent && recognised, k.Reason == Rejected && k.Billed == BilledYes:
		return false
	}
	return k.Billed == BilledUnknown || k.Billed == BilledYes
}

// fate says what to do with a letter that is not excluded.
type fate int

const (
	publish    fate = iota
	settled         // its job was redriven already: delete the letter
	superseded      // another letter has its id: as settled, if that one is of the same request
	leave           // its producer has sent the job more than once, and a queue took it
)

func (r *Redrive) fate(k *Kept) (f fate, newest uint64) {
	s, known := r.found.of(k)
	switch {
	case !known, s.since == resubmitted:
		return leave, s.seq
	case s.seq != k.Seq:
		return superseded, s.seq
	case s.since == redriven:
		return settled, s.seq
	}
	return publish, s.seq
}

func (r *Redrive) count(p *Plan, loads map[string]*load, k *Kept, now time.Time) {
	terms, skip := r.exclude(k, now)
	if skip != "" {
		p.Skipped[skip]++
		return
	}
	switch f, _ := r.fate(k); f {
	case leave:
		p.Skipped[SkipResubmitted]++
		return
	case settled, superseded:
		p.Settled++
		return
	}
	p.Letters++
	p.Cost += terms.Price
	if p.Oldest.IsZero() || k.Stored.Before(p.Oldest) {
		p.Oldest = k.Stored
	}
	switch k.Billed {
	case BilledYes:
		p.BilledBefore++
		p.BilledBeforeCost += terms.Price
	case BilledUnknown:
		p.MaybeBilled++
	}
	if loads[k.API] == nil {
		loads[k.API] = &load{}
	}
	loads[k.API].add(k, &terms.Rules, p.Letters-1)
}

// forecast adds what the limits predict to the plan.
func (r *Redrive) forecast(ctx context.Context, p *Plan, loads map[string]*load) error {
	p.Publishing = durationOf(float64(max(0, p.Letters-1)) * r.opts.Rate.Per.Seconds() / float64(r.opts.Rate.Count))
	var keys inflow
	for api, l := range loads {
		depths, err := queue.Depths(ctx, r.opts.Browser.js, api)
		if err != nil {
			return err
		}
		waiting := make(map[string]uint64, len(depths))
		for _, d := range depths {
			waiting[d.Key] = d.Jobs
		}
		terms, _ := r.terms(api)
		p.Keys += len(l.keys)
		p.NoRoom += l.overflow(&terms, waiting)
		keys = append(keys, l.inflow(&terms, waiting)...)
		if d, what := l.drain(api, &terms, waiting); d > p.Draining {
			p.Draining, p.Slowest = d, what
		}
	}
	if p.NoRoom == 0 {
		return nil // if all find room at once, none can overflow
	}
	if p.Overflow = keys.overflow(r.opts.Rate.Per.Seconds()/float64(r.opts.Rate.Count), 1); p.Overflow > 0 {
		if roomy, ok := keys.roomy(r.opts.Rate); ok {
			p.Roomy = &roomy
		}
	}
	return nil
}
