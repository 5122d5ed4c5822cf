package fakeapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// errTooManyKeys refuses a call whose key would exceed Options.MaxKeys.
var errTooManyKeys = errors.New("fakeapi: more keys than MaxKeys")

// Totals counts everything since the ledger began, including what memory no longer has.
type Totals struct {
	Arrivals int64 // requests that reached the api
	Ended    int64 // arrivals that have ended
	Limited  int64 // arrivals that the vendor limit or a use limit refused
	Replayed int64 // answered from the saved answer of their idempotency key
	Billed   int64 // calls billed
	Charged  int64 // for the billed calls, in millionths of the currency
	Dropped  int64 // oldest arrivals that were dropped from memory
	// ByStatus counts the ended calls by answered status. 0 means no answer.
	ByStatus map[int]int64
}

// keyBook is what the book knows about one key.
type keyBook struct {
	calls int64
	log   slidingLog
	uses  []useLog // by use limit; nil: none yet
}

// waiter is one waiting call of Await.
type waiter struct {
	reached func(Totals) bool
	done    chan struct{}
}

// book is the ledger's copy in memory: a ring of the newest arrivals, the totals, and what is known of each key. It is
// safe for concurrent use. Only the book may change an arrival that was entered.
type book struct {
	limit   VendorLimit
	limits  []UseLimit
	tells   bool // each answer reports what is left of the limit
	keep    int
	maxKeys int

	mu      sync.Mutex
	ring    []*Arrival // the nth arrival is at index (n-1) % keep
	last    int64      // number of the latest arrival
	keys    map[string]*keyBook
	all     slidingLog
	uses    []useLog // of the limits that all keys share
	totals  Totals
	waiters []*waiter
}

func newBook(opts Options) *book {
	return &book{
		limit: opts.Limit, limits: opts.Limits, uses: make([]useLog, len(opts.Limits)), tells: opts.Vendor != "",
		keep: opts.KeepArrivals, maxKeys: opts.MaxKeys,
		keys: make(map[string]*keyBook), totals: Totals{ByStatus: make(map[int]int64)},
	}
}

// entered is the result of enter.
type entered struct {
	keyCall int64         // the number of the call among those of its key, from 1; 0 if there are too many keys
	wait    time.Duration // above zero: the call exceeds the vendor limit, and should have waited this much longer
	left    allowance     // of the vendor limit
	err     error         // errTooManyKeys; the arrival is entered even so
}

// enter numbers an arrival, stores it and checks it against the vendor limit.
func (b *book) enter(arr *Arrival) entered {
	b.mu.Lock()
	defer b.mu.Unlock()
	arr.Number = b.last + 1
	return b.add(arr)
}

// add stores a numbered arrival. The caller holds the lock.
func (b *book) add(arr *Arrival) entered {
	b.last = max(b.last, arr.Number)
	if slot := int(b.totals.Arrivals % int64(b.keep)); slot < len(b.ring) {
		b.ring[slot] = arr
		b.totals.Dropped++
	} else {
		b.ring = append(b.ring, arr)
	}
	b.totals.Arrivals++
	b.wake()
	kb := b.keys[arr.Key]
	if kb == nil {
		if len(b.keys) >= b.maxKeys {
			return entered{err: errTooManyKeys}
		}
		kb = &keyBook{}
		b.keys[arr.Key] = kb
	}
	kb.calls++
	in := entered{keyCall: kb.calls}
	if b.limit.Count == 0 {
		return in
	}
	log := &kb.log
	if b.limit.Scope == AllKeys {
		log = &b.all
	}
	if in.wait = log.admit(arr.At, b.limit); b.tells {
		in.left = log.left(arr.At, b.limit)
	}
	return in
}

// settlement is how a call ended.
type settlement struct {
	end    int64
	ending Ending
	status int
	charge int64
	billed bool
	used   Tokens
	seen   bool

	bodySize int64
	bodyHash string
	body     []byte
}

// settle copies the settlement to the arrival and the totals. Call it once per arrival.
func (b *book) settle(arr *Arrival, s settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	arr.End, arr.Ending, arr.Status = s.end, s.ending, s.status
	arr.Billed, arr.Charge, arr.Used, arr.Seen = s.billed, s.charge, s.used, s.seen
	arr.BodySize, arr.BodyHash, arr.Body = s.bodySize, s.bodyHash, s.body
	b.count(arr)
	b.settleUse(arr)
	b.wake()
}

// count adds an ended arrival to the totals. The caller holds the lock.
func (b *book) count(arr *Arrival) {
	t := &b.totals
	t.Ended++
	t.ByStatus[arr.Status]++
	t.Charged += arr.Charge
	if arr.Billed {
		t.Billed++
	}
	switch arr.Ending {
	case Limited:
		t.Limited++
	case Replayed:
		t.Replayed++
	}
}

// finish sets a later end of a settled arrival.
func (b *book) finish(arr *Arrival, end int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	arr.End = end
}

// restore loads the calls of a ledger that is continued. Calls that the vendor limit let through count against the
// limit again.
func (b *book) restore(arrivals []Arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit
	for i := range arrivals {
		arr := new(Arrival) // not &arrivals[i]: one kept arrival would keep all of them in memory
		*arr = arrivals[i]
		b.limit = limit
		if arr.Ending == Limited {
			b.limit = VendorLimit{} // the call was refused then and used nothing
		}
		b.add(arr)
		if arr.Ending != Running {
			b.count(arr)
			b.restoreUse(arr)
		}
	}
	b.limit = limit
}

// wake wakes the waiters whose condition is true. The caller holds the lock.
func (b *book) wake() {
	if len(b.waiters) == 0 {
		return
	}
	b.waiters = slices.DeleteFunc(b.waiters, func(w *waiter) bool {
		if !w.reached(b.totals) {
			return false
		}
		close(w.done)
		return true
	})
}

// await blocks until reached returns true for the totals. If ctx ends first, it returns ctx's cause.
func (b *book) await(ctx context.Context, reached func(Totals) bool) error {
	w := &waiter{reached: reached, done: make(chan struct{})}
	b.mu.Lock()
	b.waiters = append(b.waiters, w)
	b.wake()
	b.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waiters = slices.DeleteFunc(b.waiters, func(other *waiter) bool { return other == w })
		return context.Cause(ctx)
	}
}

// snapshot copies the arrivals in memory for which pass returns true, ordered by time.
func (b *book) snapshot(pass func(*Arrival) bool) []Arrival {
	b.mu.Lock()
	var out []Arrival
	for _, arr := range b.ring {
		if pass(arr) {
			out = append(out, *arr)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(out, byTime)
	return out
}

// keyNames returns all keys so far, sorted.
func (b *book) keyNames() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.keys))
}

func (b *book) totalsNow() Totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.totals
	t.ByStatus = maps.Clone(t.ByStatus)
	return t
}
