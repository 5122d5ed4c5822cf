package deadletter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// A letter says how its job ended, not what happened since. A redrive may have been killed after the receipt and before
// it deleted the letter. Or the producer has sent the same job again after a 429, and weir called it. JetStream forgets
// message ids too soon to detect that. So before a redrive publishes anything, it reads the queue, the letters and the
// ledger for traces of the same jobs. The queue must come first: a job leaves it only after its letter or its record is
// stored. Producers continue while a redrive runs, so the redrive looks again before each letter.
//
// The servers' time stamps decide what came before a letter and what came after it; the replicas' clocks do not. A call
// that was made before the letter, in the same life of the job, names the same origin as the letter.
//
// A life of a job is one submission of it that a queue took. The letter of a refused job ended no life: an earlier
// submission may have been taken, and the producer has sent the job again. The queue does not detect this if the job
// was refused as invalid, or if the servers' clocks differ. So a call counts, too, if its life began while the queue
// knew the id.

// identity identifies a job by its api, key and id. It is a hash, so that a million of them fit in memory.
type identity [16]byte

func identify(api, key, job string) (id identity) {
	sum := sha256.Sum256([]byte(ingest.Token(api) + " " + ingest.Token(key) + " " + job))
	copy(id[:], sum[:])
	return id
}

// jobHistory is what is known about a job that has a letter.
type jobHistory struct {
	seq      uint64 // number of the job's newest letter
	redrives int    // of that letter
	stored   int64  // of that letter, in nanoseconds since 1970
	sameFrom int64  // a life of the id that began at this time or later belongs to the same job
	origin   uint64 // of that letter, hashed
	first    uint64 // number of the letter that the job was first redriven from, or of that letter itself
	since    progress
}

// progress is what happened to a job since its newest letter.
type progress uint8

const (
	nothing     progress = iota
	resubmitted          // its producer has sent it again, and it waits or was called
	redriven             // an operator has redriven it
)

// life is one submission of a job that waits or was called.
type life struct {
	redrives int
	from     uint64 // number of the letter that the job was first redriven from; 0: none
}

// Trace is what the ledger records of a call.
type Trace struct {
	Key, Job string
	Redrives int
	From     uint64    // number of the letter that the job was first redriven from; 0: none, or unknown
	Origin   string    // of the life in which the call was made, as in Letter.Origin
	Accepted time.Time // when that life began, by the server's clock
	Stored   time.Time // when the record was stored, by the server's clock
}

// histories holds the history of each job that has a selected letter. It is safe for concurrent use.
type histories struct {
	mu   sync.Mutex // guards what follows
	jobs map[identity]jobHistory
}

// historyScope says where to look for traces, by api.
type historyScope map[string]*apiScope

// apiScope says where to look for traces of one api's jobs.
type apiScope struct {
	keys   map[string]struct{} // nil: all, if there are more than maxScopeKeys
	since  time.Time           // when the first letter was stored
	calls  time.Time           // no earlier call can matter
	dedupe time.Duration       // how long the queue knows an id
}

// maxScopeKeys is how many keys of an api are looked up by name. With more keys the redrive reads the whole api.
const maxScopeKeys = 16

// add adds the key and the time of a letter. dedupe is how long the queue of its api knows an id.
func (p historyScope) add(k *Kept, dedupe time.Duration) {
	at := p[k.API]
	if at == nil {
		at = &apiScope{keys: map[string]struct{}{}, since: k.FirstStored(), dedupe: dedupe}
		p[k.API] = at
	}
	first := k.FirstStored()
	if first.Before(at.since) {
		at.since = first
	}
	if k.neverTaken() {
		first = first.Add(-dedupe)
	}
	if at.calls.IsZero() || first.Before(at.calls) {
		at.calls = first
	}
	if at.keys != nil {
		at.keys[k.Key] = struct{}{}
		if len(at.keys) > maxScopeKeys {
			at.keys = nil
		}
	}
}

// add adds a letter that may be redriven. dedupe is how long the queue knows an id.
func (r *histories) add(k *Kept, dedupe time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLetterLocked(identify(k.API, k.Key, k.JobID), k, dedupe)
}

// addLetterLocked stores a letter unless the job has a letter of a later life or, in the same life, a newer one.
func (r *histories) addLetterLocked(id identity, k *Kept, dedupe time.Duration) {
	s, met := r.jobs[id]
	if met && k.Redrives <= s.redrives && (k.Redrives != s.redrives || k.Seq <= s.seq) {
		return
	}
	stored := k.FirstStored().UnixNano()
	s = jobHistory{seq: k.Seq, redrives: k.Redrives, stored: stored, sameFrom: stored, origin: hashed(k.Origin), first: k.firstLetter(), since: s.since}
	if k.neverTaken() {
		s.sameFrom -= int64(dedupe)
	}
	r.jobs[id] = s
}

// of returns the history of a letter's job.
func (r *histories) of(k *Kept) (s jobHistory, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known = r.jobs[identify(k.API, k.Key, k.JobID)]
	return s, known
}

// addCall records a call of a job, unless the call was made in the life that the letter ended, or in an earlier one.
func (r *histories) addCall(api string, t Trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.jobs[identify(api, t.Key, t.Job)]
	later := t.Stored.UnixNano() > s.stored || t.Accepted.UnixNano() >= s.sameFrom
	if !known || !later || t.Origin != "" && hashed(t.Origin) == s.origin {
		return // made before the letter
	}
	r.addProgressLocked(identify(api, t.Key, t.Job), life{t.Redrives, t.From})
}

// knows reports whether a job has a selected letter.
func (r *histories) knows(id identity) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.jobs[id]
	return known
}

// addLater adds a letter of a job that already has a selected letter.
func (r *histories) addLater(id identity, k *Kept, dedupe time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, met := r.jobs[id]; met {
		r.addLetterLocked(id, k, dedupe)
	}
}

// addProgress is addProgressLocked with the lock.
func (r *histories) addProgress(id identity, l life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addProgressLocked(id, l)
}

// addProgressLocked records that a job waits or was called since its letter. A later job may have the same id: its
// redrives name another letter, so it does not count as redriven.
func (r *histories) addProgressLocked(id identity, l life) {
	s, known := r.jobs[id]
	if !known {
		return
	}
	own := l.from == s.first
	if s.since = max(s.since, resubmitted); own && l.redrives > s.redrives {
		s.since = redriven
	}
	r.jobs[id] = s
}

// firstLetter returns the number of the letter that k's job was first redriven from, or k's own.
func (k *Kept) firstLetter() uint64 { return cmp.Or(RedrivenFrom(k.Header, k.Redrives), k.Seq) }

func hashed(origin string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(origin)) // it never fails
	return h.Sum64()
}

// trace looks for traces of the jobs in each api. It returns the look of each api, so that later looks read only new
// messages.
func (r *histories) trace(ctx context.Context, b *Browser, calls CallsReader, where historyScope) (map[string]*look, error) {
	looks := map[string]*look{}
	for api, at := range where {
		l := &look{found: r, browser: b, calls: calls, api: api, keys: at.named(), since: at.since, from: at.calls, dedupe: at.dedupe}
		if err := l.look(ctx); err != nil {
			return nil, err
		}
		looks[api] = l
	}
	return looks, nil
}

// named returns the keys to look up in order. Nil means all keys.
func (at *apiScope) named() []string {
	if at.keys == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(at.keys))
}

// redrivesIn returns how often a waiting job was redriven, by its headers.
func redrivesIn(h nats.Header) int {
	n, err := strconv.Atoi(h.Get(ingest.HeaderRedrives))
	if err != nil {
		return 0
	}
	return n
}

// jobKey is a key of an api.
type jobKey struct{ api, key string }
