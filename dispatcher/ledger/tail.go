package ledger

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/ingest"
)

// Bounds limit the part of the ledger that is read at the start and at every takeover. What lies before is looked up by
// key when it is needed. The zero value of a field stands for its default.
type Bounds struct {
	// Records is how many whole records are kept, by default 500,000. Of older ones only the ids of ended jobs are
	// kept.
	Records int
	// Age is how far back from the newest record whole records are kept, by default ten minutes.
	Age time.Duration
	// Leeway is how long before the newest record a result without a record may have been stored, by default one
	// minute.
	Leeway time.Duration
}

// OrDefault returns the bounds with a default for each field that is 0.
func (b Bounds) OrDefault() Bounds {
	return Bounds{Records: cmp.Or(b.Records, 500_000), Age: cmp.Or(b.Age, TailAge), Leeway: cmp.Or(b.Leeway, resultLeeway)}
}

// TailAge is the default of Bounds.Age. It is also how long theoretical arrival times of keys are remembered after they
// have passed.
const TailAge = 10 * time.Minute

// Tail keeps what the newest part of the ledger says. At the start, the part is read for all partitions, and at a
// takeover for those that are taken over. Tail is safe for concurrent use.
type Tail struct {
	mu      sync.Mutex                         // guards the fields below
	records map[string]map[uint64]LastCall     // by stream and sequence, until the partition is open
	results map[string]map[uint64]StoredResult // results of the last minute, likewise
	tats    map[string]map[string]bucket.Micros
	read    map[string]bucket.Micros // by api: when the ledger was last read for it
	reach   map[string]reach         // by api
	ids     map[string]uint64        // by api: the ledger's sequence up to which the ends of all its jobs are known
	gaps    map[string]bool          // by api: see Gap
}

// reach says how far back the ledger's end was read. Its zero value reaches back to the very first record.
type reach struct {
	since            bucket.Micros // by the caller's clock
	records, results time.Time     // by the servers' clocks
}

// LastCall is what a Tail keeps of a job's newest record.
type LastCall struct {
	Call, Attempt int
	Outcome       string
	Detail        string
	Status        int
	Billed        deadletter.Billed
	Identity      string // CallIdentity, if the call may have been processed and another may follow
	Final         bool
	NotBefore     bucket.Micros
	KeySum        uint64
	At            uint64           // its sequence in the ledger, if the api answered the call
	Operation     *queue.Operation // the operation that the call began; nil for none, and if the job is done
	Pack          *queue.Pack      // kept under the same conditions as Identity
	id            string           // message id under which the job was stored
	accepted      bucket.Micros    // when the stream took the job
}

// Last returns what a Tail keeps of the record.
func (c *Record) Last() LastCall {
	at := c.At
	if c.Status == 0 {
		at = 0
	}
	last := LastCall{
		Call: c.Call, Attempt: c.Attempt, Outcome: c.Outcome, Detail: c.Detail, Status: c.Status, Billed: c.Billed, Final: c.Final,
		NotBefore: c.NotBefore, KeySum: queue.KeySum(c.Key), At: at, id: ingest.StoredID(c.Key, c.Dedupe), accepted: bucket.MicrosOf(c.Accepted),
	}
	// Few jobs need the rest, and half a million records are kept.
	if !c.Final || c.Outcome != Done {
		last.Operation = c.Operation
	}
	if !c.Final && c.Billed != deadletter.NotBilled {
		last.Identity, last.Pack = c.Idempotency, c.Pack
	}
	return last
}

// Of reports whether the record belongs to the job that now has the record's sequence. If the stream was deleted since,
// and a new one counts from 1 again, another job has it.
func (c *LastCall) Of(e queue.Entry) bool {
	return c.id == e.Header.Get(ingest.HeaderMsgID) && c.accepted == bucket.MicrosOf(e.Time)
}

// PushedBack reports whether the api said "not now".
func (c *LastCall) PushedBack() bool { return c.Outcome == PushedBack }

// NewTail returns a Tail that has read nothing.
func NewTail() *Tail {
	return &Tail{
		records: map[string]map[uint64]LastCall{}, results: map[string]map[uint64]StoredResult{}, tats: map[string]map[string]bucket.Micros{},
		read: map[string]bucket.Micros{}, reach: map[string]reach{}, ids: map[string]uint64{}, gaps: map[string]bool{},
	}
}

// Detach removes and returns what is known of the jobs of a stream. The caller is about to read that stream.
func (t *Tail) Detach(calls string) (map[uint64]LastCall, map[uint64]StoredResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	records, results := t.records[calls], t.results[calls]
	delete(t.records, calls)
	delete(t.results, calls)
	return records, results
}

// TAT returns the theoretical arrival time after the newest recorded call of a key, 0 if there is none.
func (t *Tail) TAT(api, key string) bucket.Micros {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tats[api][key]
}

// ReadAt returns when the ledger was last read for an api.
func (t *Tail) ReadAt(api string) bucket.Micros {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read[api]
}

// Covers reports whether everything has been read that was recorded for an api at a time or later.
func (t *Tail) Covers(api string, at bucket.Micros) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, read := t.reach[api]
	return read && at >= r.since
}

// Gap reports whether records are missing, or cannot be read, between the records of an api that were read. The newest
// record of a key that was read may then not be the key's newest.
func (t *Tail) Gap(api string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gaps[api]
}

// Knows reports whether everything that was stored about an api's calls since a time has been read. The time is by the
// servers' clock.
func (t *Tail) Knows(api string, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, read := t.reach[api]
	return read && !r.records.After(at) && !r.results.After(at)
}

// idsKnown returns the sequence of the ledger up to which the ends of all jobs of the apis are known here, 0 for none.
func (t *Tail) idsKnown(apis []string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.ids[apis[0]]
	for _, api := range apis[1:] {
		known = min(known, t.ids[api])
	}
	return known
}

// adopt takes over what a reading found about its apis. now is when the reading ended. adopt drops theoretical arrival
// times of keys that passed more than TailAge ago.
func (t *Tail) adopt(r *reading, now bucket.Micros) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, api := range r.APIs {
		t.read[api], t.gaps[api] = now, t.gaps[api] || r.gap
		t.keepReachLocked(r, api, now)
		maps.DeleteFunc(t.tats[api], func(_ string, tat bucket.Micros) bool { return tat < now.Add(-TailAge) })
	}
	for _, g := range []*generation{&r.old, &r.young} {
		for calls := range g.byMessage { // a partition was read again: what an earlier reading found is outdated
			delete(t.records, calls)
		}
	}
	for _, g := range []*generation{&r.old, &r.young} {
		for calls, records := range g.byMessage {
			t.adoptRecordsLocked(calls, records)
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

func (t *Tail) adoptRecordsLocked(calls string, records map[uint64]LastCall) {
	known := t.records[calls]
	if known == nil {
		t.records[calls] = records
		return
	}
	for seq, c := range records {
		if c.Call >= known[seq].Call {
			known[seq] = c
		}
	}
}

// keepReachLocked notes how far back a reading got that ended at now. If there was an earlier reading, the shorter
// reach counts, because each reading covered other partitions.
func (t *Tail) keepReachLocked(r *reading, api string, now bucket.Micros) {
	was, again := t.reach[api]
	n := reach{records: r.from, results: r.resultsFrom}
	if !r.from.IsZero() {
		n.since = now.Add(ServerSkew - r.extent.Asked.Sub(r.from))
	}
	if again {
		n.since = max(n.since, was.since)
		if was.records.After(n.records) {
			n.records = was.records
		}
		if was.results.After(n.results) {
			n.results = was.results
		}
	}
	t.reach[api] = n
	if r.everyID {
		t.ids[api] = r.last
	}
}
