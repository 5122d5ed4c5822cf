package deadletter

import (
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

// maxScopeKeys is how many keys are looked up by their names; beyond it the whole api is read.
const maxScopeKeys = 16

// add notes a key that has a letter.
func (p historyScope) add(k *Kept) {
	at := p[k.API]
	if at == nil {
		at = &apiScope{keys: map[string]struct{}{}, since: k.FirstStored()}
		p[k.API] = at
	}
	if first := k.FirstStored(); first.Before(at.since) {
		at.since = first
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
		r.jobs[id] = jobHistory{seq: k.Seq, redrives: k.Redrives, stored: k.FirstStored().UnixNano(), origin: hashed(k.Origin), since: s.since}
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

// knows reports whether a job has a selected letter.
func (r *histories) knows(id identity) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.jobs[id]
	return known
}

// addLater notes a letter of a job that has a selected one.
func (r *histories) addLater(id identity, k *Kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.jobs[id]; known {
		r.addLetterLocked(id, k)
	}
}

// addProgress is addProgressLocked.
func (r *histories) addProgress(id identity, redrives int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addProgressLocked(id, redrives)
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

// trace looks for what became of the jobs, and returns from where on each api is looked at again.
func (r *histories) trace(ctx context.Context, b *Browser, calls CallsReader, where historyScope) (map[string]*look, error) {
	looks := map[string]*look{}
	for api, at := range where {
		l := &look{found: r, browser: b, calls: calls, api: api, keys: at.named(), since: at.since}
		if err := l.look(ctx); err != nil {
			return nil, err
		}
		looks[api] = l
	}
	return looks, nil
}

// named is the keys to look up; nil stands for all.
func (at *apiScope) named() []string {
	if at.keys == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(at.keys))
}

// redrivesIn reads how often a waiting job was redriven.
func redrivesIn(h nats.Header) int {
	n, err := strconv.Atoi(h.Get(ingest.HeaderRedrives))
	if err != nil {
		return 0
	}
	return n
}

// jobKey is a key of an api.
type jobKey struct{ api, key string }
