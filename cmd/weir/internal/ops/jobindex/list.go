package jobindex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// Place is the position of a job in a list of jobs, newest first. Different jobs have different places.
type Place struct {
	At     int64  // when the job reached its state, in nanoseconds
	Stream string // the stream of the message by which the job reached its state
	Seq    uint64
}

// Compare returns a negative number if p comes before o in a list.
func (p Place) Compare(o Place) int {
	return cmp.Or(cmp.Compare(o.At, p.At), strings.Compare(p.Stream, o.Stream), cmp.Compare(o.Seq, p.Seq))
}

// String returns the place in the form that a user gives as the cursor of a page.
func (p Place) String() string {
	if p == (Place{}) {
		return ""
	}
	return fmt.Sprintf("%d.%d.%s", p.At, p.Seq, p.Stream)
}

// MarshalText encodes the place as String does.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText decodes the text of MarshalText.
func (p *Place) UnmarshalText(text []byte) error {
	*p = Place{}
	if len(text) == 0 {
		return nil
	}
	parts := strings.SplitN(string(text), ".", 3)
	if len(parts) != 3 {
		return errCursor
	}
	at, err := strconv.ParseInt(parts[0], 10, 64)
	seq, seqErr := strconv.ParseUint(parts[1], 10, 64)
	if err != nil || seqErr != nil {
		return errCursor
	}
	*p = Place{At: at, Stream: parts[2], Seq: seq}
	return nil
}

var errCursor = errors.New("it is not the next of a page")

// Filter selects jobs. The zero value of a field selects all.
type Filter struct {
	API    string                 `json:"api,omitempty"`
	Key    string                 `json:"key,omitempty"`
	Status deadletter.StatusRange `json:"status,omitzero"` // of the last answer
	Since  time.Time              `json:"since,omitzero"`  // the job reached its state at or after this time
	Until  time.Time              `json:"until,omitzero"`  // the job reached its state before this time
	Part   string                 `json:"id,omitempty"`    // a part of the job's id
	After  Place                  `json:"after,omitzero"`  // only jobs after this place in the list
}

// Question is a question about jobs that have ended.
type Question struct {
	Filter
	Done  bool `json:"done,omitempty"`
	Dead  bool `json:"dead,omitempty"`
	Limit int  `json:"limit"`
}

// Ended is a job that has ended.
type Ended struct {
	API      string    `json:"api"`
	Key      string    `json:"key"`
	Job      string    `json:"job"`
	Place    Place     `json:"place"`
	Accepted time.Time `json:"accepted,omitzero"`
	Status   int       `json:"status"`
	Calls    int       `json:"calls"`
	Outcome  string    `json:"outcome"` // done, or a letter's reason
}

// Letter returns the sequence of the job's letter, 0 for a job that is done.
func (e *Ended) Letter() uint64 {
	if e.Place.Stream == deadletter.Stream {
		return e.Place.Seq
	}
	return 0
}

// Page is one page of a list.
type Page struct {
	Jobs []Ended `json:"jobs"`
	More bool    `json:"more"` // more jobs follow
	// Since is the time back to which the list goes. It is zero if the list has every job that is stored.
	Since time.Time `json:"since,omitzero"`
	// Building means that the list will soon go back further.
	Building bool `json:"building,omitempty"`
	// Behind is how many of the newest messages were not read in time. Their jobs are missing in the list.
	Behind  uint64 `json:"behind,omitempty"`
	Missing int    `json:"missing,omitempty"` // records of calls that are lost or cannot be read
	Looked  int    `json:"looked"`            // entries examined
}

// catchUp is how long a question waits for messages that are in the streams and not yet in the index.
const catchUp = time.Second

// List returns jobs that have ended, newest first. It first waits until the index has what the streams had when List
// was called, but at most catchUp. After that it reads only memory.
func (x *Index) List(ctx context.Context, q Question) (Page, error) {
	asked := x.views(q.Done, q.Dead, false)
	page := Page{Jobs: []Ended{}}
	for _, n := range x.awaitEnds(ctx, asked) {
		page.Behind += n
	}
	if q.Dead {
		if err := x.forgetDeleted(ctx); err != nil {
			return page, err
		}
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, s := range asked {
		found, looked := x.matchesLocked(s.name, s.shelf, &q)
		page.Jobs, page.Looked = append(page.Jobs, found...), page.Looked+looked
		page.Missing += s.shelf.missing
		page.Building = page.Building || s.shelf.building()
		if since := s.shelf.sinceTime(); since.After(page.Since) {
			page.Since = since
		}
	}
	return page.first(q.Limit), nil
}

// view is a shelf with the name of its stream.
type view struct {
	name  string
	shelf *shelf
}

func (x *Index) views(done, dead, events bool) (views []view) {
	if done {
		views = append(views, view{ledger.CallsStream, &x.calls})
	}
	if dead {
		views = append(views, view{deadletter.Stream, &x.letters})
	}
	if events {
		views = append(views, view{deadletter.EventsStream, &x.events})
	}
	return views
}

// first sorts the page's jobs and keeps the first limit of them.
func (p Page) first(limit int) Page {
	slices.SortFunc(p.Jobs, func(a, b Ended) int { return a.Place.Compare(b.Place) })
	if p.More = len(p.Jobs) > limit; p.More {
		p.Jobs = p.Jobs[:limit]
	}
	return p
}

// building reports whether older messages must still be read.
func (s *shelf) building() bool { return !s.absent && !s.whole && !s.full }

// sinceTime returns the time back to which the shelf goes. It is zero if the stream has no older message.
func (s *shelf) sinceTime() time.Time {
	switch {
	case s.absent, s.whole:
		return time.Time{}
	case s.since == 0:
		return time.Now().UTC() // no message was read yet
	}
	return time.Unix(0, s.since).UTC()
}

// matchesLocked returns the first q.Limit jobs of a shelf that a question selects, and one more if there is one. looked
// is the number of entries that it examined.
func (x *Index) matchesLocked(name string, s *shelf, q *Question) (found []Ended, looked int) {
	upTo, since, part := int64(math.MaxInt64), int64(math.MinInt64), []byte(q.Part)
	if q.After != (Place{}) {
		upTo = q.After.At
	}
	if !q.Until.IsZero() {
		upTo = min(upTo, q.Until.UnixNano()-1)
	}
	if !q.Since.IsZero() {
		since = q.Since.UnixNano()
	}
	api := -1
	if q.API != "" {
		wanted := q.API
		if wanted == noAPI {
			wanted = ""
		}
		at, known := x.places[wanted]
		if !known {
			return nil, 0
		}
		api = at
	}
	s.each(upTo, func(b *block, e *entry) bool {
		looked++
		switch {
		case e.stored < since:
			return false
		case !e.listable,
			api >= 0 && int(e.api) != api,
			q.Status != deadletter.StatusRange{} && (int(e.status) < q.Status.From || int(e.status) > q.Status.To),
			q.Key != "" && !b.isKey(e, q.Key),
			len(part) > 0 && !b.idContains(e, part):
			return true
		}
		if place := (Place{e.stored, name, e.seq}); q.After == (Place{}) || place.Compare(q.After) > 0 {
			found = append(found, x.endedLocked(b, e, place))
		}
		return len(found) <= q.Limit
	})
	return found, looked
}

// noAPI is the name by which users select letters of unknown apis.
const noAPI = "_"

func (x *Index) endedLocked(b *block, e *entry, place Place) Ended {
	ended := Ended{API: x.names[e.api], Key: b.keyOf(e), Job: b.id(e), Place: place, Status: int(e.status), Calls: int(e.calls), Outcome: x.names[e.outcome]}
	if e.took > 0 {
		ended.Accepted = time.Unix(0, e.stored).Add(-time.Duration(e.took-1) * time.Millisecond).UTC()
	}
	return ended
}

// Traces are the sequences of messages about an id. Some of them may be about another id, because the index compares
// hashes.
type Traces struct {
	Calls   []uint64 `json:"calls"`   // records in the ledger, the newest first
	Letters []uint64 `json:"letters"` // letters, the newest first
	Events  []uint64 `json:"events"`  // events, the newest first
	// InCalls, InLetters and InEvents say how much of the ledger, the letters and the events the index has. InEvents is
	// nil if some events were not read yet.
	InCalls   Reach  `json:"in_calls"`
	InLetters Reach  `json:"in_letters"`
	InEvents  *Reach `json:"in_events,omitempty"`
	// Doubtful says that the index may lack traces within its reach: records are missing, or not read yet.
	Doubtful bool `json:"doubtful,omitempty"`

	looked int // entries examined
}

// Reach says how much of a stream the index has, from the stream's newest message back.
type Reach struct {
	Messages int       `json:"messages"`
	Back     time.Time `json:"back,omitzero"` // when the oldest message in the index was stored; zero if the stream has no older one
}

// All reports whether the index has the whole stream.
func (r *Reach) All() bool { return r.Back.IsZero() }

// HasEvents reports whether Events has all stored events about the id.
func (t *Traces) HasEvents() bool {
	return t.InEvents != nil && t.InEvents.All() && len(t.Events) < MostTraces
}

// MostTraces bounds how many messages of one stream Traces returns for an id.
const MostTraces = 1000

// Traces returns where an id occurs in the ledger, the letters and the events. It waits as List does. After that it
// reads only memory: the filter of each block, and the entries of about one block in thirty.
func (x *Index) Traces(ctx context.Context, id string) Traces {
	left := x.awaitEnds(ctx, x.views(true, true, true))
	t := x.tracesOf(id)
	t.Doubtful = t.Doubtful || left[0]+left[1] > 0
	if left[2] > 0 {
		t.InEvents = nil
	}
	return t
}

func (x *Index) tracesOf(id string) Traces {
	x.mu.RLock()
	defer x.mu.RUnlock()
	hash := maphash.String(x.seed, id)
	told := x.events.reach()
	t := Traces{InCalls: x.calls.reach(), InLetters: x.letters.reach(), InEvents: &told}
	t.Calls = x.calls.find(hash, &t.looked)
	t.Letters = x.letters.find(hash, &t.looked)
	t.Events = x.events.find(hash, &t.looked)
	t.Doubtful = x.calls.missing > 0 || len(t.Calls) == MostTraces || len(t.Letters) == MostTraces
	return t
}

func (s *shelf) reach() (r Reach) {
	for _, blocks := range [][]*block{s.newer, s.older} {
		for _, b := range blocks {
			r.Messages += len(b.entries)
		}
	}
	r.Back = s.sinceTime()
	return r
}

// find returns the sequences of an id's messages, newest first, MostTraces at most. It adds the number of entries that
// it examined to looked.
func (s *shelf) find(hash uint64, looked *int) []uint64 {
	found := []uint64{}
	take := func(e *entry) {
		if *looked++; e.hash == hash && len(found) < MostTraces {
			found = append(found, e.seq)
		}
	}
	for _, b := range slices.Backward(s.newer) {
		if b.filter.has(hash) {
			for i := len(b.entries) - 1; i >= 0; i-- {
				take(&b.entries[i])
			}
		}
	}
	for _, b := range s.older {
		if b.filter.has(hash) {
			for i := range b.entries {
				take(&b.entries[i])
			}
		}
	}
	return found
}
