package deadletter

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"weir/bucket/queue"
	"weir/ingest"
)

// A letter says how its job ended, not what became of it since. A redrive may have been killed between the receipt and
// the letter's deletion; or its producer, told 429, has sent the same job again, and it was called. JetStream's memory of
// message ids is too short to tell, so before anything is published the queue, the letters and the ledger are read for
// traces of the same jobs. The queue comes first: a job leaves it only once its letter or its record is stored. While a
// redrive runs producers go on, and so it looks again before each letter.
//
// What came before a letter and what came after it the servers' stamps tell, and not the replicas' clocks; a call of the
// life that the letter ended names the same origin.

// identity is a job of a key of an api: a hash, so that a million of them fit into memory.
type identity [16]byte

func identify(api, key, job string) (id identity) {
	sum := sha256.Sum256([]byte(ingest.Token(api) + " " + ingest.Token(key) + " " + job))
	copy(id[:], sum[:])
	return id
}

// jobHistory is what is known of a job that has a letter.
type jobHistory struct {
	seq      uint64 // its newest letter
	redrives int    // of that letter
	stored   int64  // of that letter, in nanoseconds since 1970
	origin   uint64 // of that letter, hashed
	since    progress
}

// progress is what became of a job since its newest letter.
type progress uint8

const (
	nothing     progress = iota
	resubmitted          // its producer has sent it again, and it waits or was called
	redriven             // somebody has redriven it
)

// Trace is what the ledger tells of a call.
type Trace struct {
	Key, Job string
	Redrives int
	Origin   string    // of the life of the job that it was made in, as a letter has it
	Stored   time.Time // by the server
}

// histories are those of the jobs that have a selected letter. They are safe for concurrent use.
type histories struct {
	mu   sync.Mutex // guards what follows
	jobs map[identity]jobHistory
}

// historyScope is where traces are looked for, by api.
type historyScope map[string]*apiScope

// apiScope is where traces of one api's jobs are looked for.
type apiScope struct {
	keys  map[string]struct{} // nil: all; there are more than maxScopeKeys
	since time.Time           // when the first letter was stored
}

// maxScopeKeys is how many keys are looked up each on its own; beyond it the whole api is read.
const maxScopeKeys = 16

// add notes a key that has a letter.
func (p historyScope) add(k *Kept) {
	at := p[k.API]
	if at == nil {
		at = &apiScope{keys: map[string]struct{}{}, since: k.Stored}
		p[k.API] = at
	}
	if at.keys != nil {
		at.keys[k.Key] = struct{}{}
		if len(at.keys) > maxScopeKeys {
			at.keys = nil
		}
	}
}

// add notes a letter that may be redriven, or superseded by another.
func (r *histories) add(k *Kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLetterLocked(identify(k.API, k.Key, k.JobID), k)
}

// addLetterLocked notes a letter unless a later life of the job has one, or a later refusal.
func (r *histories) addLetterLocked(id identity, k *Kept) {
	s, known := r.jobs[id]
	if !known || k.Redrives > s.redrives || k.Redrives == s.redrives && k.Seq > s.seq {
		r.jobs[id] = jobHistory{seq: k.Seq, redrives: k.Redrives, stored: k.Stored.UnixNano(), origin: hashed(k.Origin), since: s.since}
	}
}

// of is what is known of a letter's job.
func (r *histories) of(k *Kept) (s jobHistory, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known = r.jobs[identify(k.API, k.Key, k.JobID)]
	return s, known
}

// addCall notes a call of a job.
func (r *histories) addCall(api string, t Trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.jobs[identify(api, t.Key, t.Job)]
	if !known || t.Stored.UnixNano() <= s.stored || t.Origin != "" && hashed(t.Origin) == s.origin {
		return // the life that the letter ended, or an earlier one
	}
	r.addProgressLocked(identify(api, t.Key, t.Job), t.Redrives)
}

// addProgressLocked notes that a job waits or was called since.
func (r *histories) addProgressLocked(id identity, redrives int) {
	s, known := r.jobs[id]
	if !known {
		return
	}
	if s.since = max(s.since, resubmitted); redrives > s.redrives {
		s.since = redriven
	}
	r.jobs[id] = s
}

func hashed(origin string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(origin)) // it never fails
	return h.Sum64()
}

// trace looks for what became of the jobs.
func (r *histories) trace(ctx context.Context, b *Browser, calls CallsReader, where historyScope) error {
	waiting := map[identity]int{}
	for api, at := range where {
		for _, key := range at.each() {
			err := queue.Waiting(ctx, b.js, api, key, func(key string, h nats.Header) {
				id := identify(api, key, h.Get(ingest.HeaderJobID))
				r.mu.Lock()
				defer r.mu.Unlock()
				if _, known := r.jobs[id]; known {
					waiting[id] = max(waiting[id], redrivesIn(h))
				}
			})
			if err != nil {
				return err
			}
		}
	}
	for api, at := range where {
		if err := r.laterLetters(ctx, b, api, at); err != nil {
			return err
		}
		for _, key := range at.each() {
			err := calls(ctx, CallsQuery{API: api, Key: key, Since: at.since}, func(t Trace) { r.addCall(api, t) })
			if err != nil {
				return fmt.Errorf("what became of the jobs of api %s: %w", api, err)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, redrives := range waiting {
		r.addProgressLocked(id, redrives)
	}
	return nil
}

// each is the keys to look up; "" stands for all.
func (at *apiScope) each() []string {
	if at.keys == nil {
		return []string{""}
	}
	keys := make([]string, 0, len(at.keys))
	for key := range at.keys {
		keys = append(keys, key)
	}
	return keys
}

// laterLetters finds letters of the same jobs that are not selected.
func (r *histories) laterLetters(ctx context.Context, b *Browser, api string, at *apiScope) error {
	for _, key := range at.each() {
		err := b.Each(ctx, Filter{API: api, Key: key, Since: at.since}, func(k Kept, _, _ uint64) error {
			id := identify(api, k.Key, k.JobID)
			r.mu.Lock()
			defer r.mu.Unlock()
			if _, known := r.jobs[id]; known {
				r.addLetterLocked(id, &k)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// redrivesIn reads how often a waiting job was redriven.
func redrivesIn(h nats.Header) int {
	n, err := strconv.Atoi(h.Get(ingest.HeaderRedrives))
	if err != nil {
		return 0
	}
	return n
}

// Bounds of looking again while a redrive runs.
const (
	// freshLook is how old a look for traces may be when a letter of its key is published. Of what comes in between the
	// queue itself tells where the job was never taken: it knows the id.
	freshLook = 250 * time.Millisecond
	// lookBack is how much farther back the next look goes: servers' clocks differ.
	lookBack = 10 * time.Second
)

// jobKey is a key of an api.
type jobKey struct{ api, key string }

// lastLook is when the traces of a key's jobs were looked for.
type lastLook struct {
	at     time.Time // by our clock
	server time.Time // by the server's
}

// lookAgain reads what became of the jobs of a letter's key since it was last read.
func (x *run) lookAgain(ctx context.Context, k *Kept) error {
	name := jobKey{k.API, k.Key}
	x.mu.Lock()
	last, before := x.looked[name]
	x.mu.Unlock()
	if before && time.Since(last.at) < freshLook {
		return nil
	}
	if !before {
		last.server = x.traced
	}
	next := lastLook{at: time.Now()}
	var err error
	if next.server, err = x.opts.Browser.now(ctx); err != nil {
		return err
	}
	where := historyScope{k.API: {keys: map[string]struct{}{k.Key: {}}, since: last.server.Add(-lookBack)}}
	if err := x.found.trace(ctx, x.opts.Browser, x.opts.Calls, where); err != nil {
		return err
	}
	x.mu.Lock()
	x.looked[name] = next
	x.mu.Unlock()
	return nil
}

// forgetKey forgets a key whose letters of a chunk are dealt with.
func (x *run) forgetKey(name jobKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.looked, name)
}

// now is the time by the server that keeps the letters.
func (b *Browser) now(ctx context.Context) (time.Time, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("what time it is for the dead letters: %w", err)
	}
	return info.TimeStamp, nil
}
