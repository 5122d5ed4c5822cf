package fakeapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// The functions below judge recorded arrivals: those of a running api, or those of a ledger that was read. They do not
// change the arrivals, accept them in any order, and need memory in proportion to their number.

// ByTime returns the arrivals ordered by time. If they are ordered already, it returns the same slice.
func ByTime(arrivals []Arrival) []Arrival {
	if slices.IsSortedFunc(arrivals, byTime) {
		return arrivals
	}
	return slices.SortedFunc(slices.Values(arrivals), byTime)
}

// OfKey returns the arrivals of one key, ordered by time.
func OfKey(arrivals []Arrival, key string) []Arrival {
	var out []Arrival
	for _, a := range ByTime(arrivals) {
		if a.Key == key {
			out = append(out, a)
		}
	}
	return out
}

// KeysOf returns the keys of the arrivals, sorted.
func KeysOf(arrivals []Arrival) []string {
	seen := make(map[string]struct{})
	var keys []string
	for i := range arrivals {
		if _, known := seen[arrivals[i].Key]; !known {
			seen[arrivals[i].Key] = struct{}{}
			keys = append(keys, arrivals[i].Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// CountByStatus counts arrivals by answered status. 0 means no answer, as for calls that still run.
func CountByStatus(arrivals []Arrival) map[int]int {
	counts := make(map[int]int)
	for i := range arrivals {
		counts[arrivals[i].Status]++
	}
	return counts
}

// CountByEnding counts arrivals by how they ended.
func CountByEnding(arrivals []Arrival) map[Ending]int {
	counts := make(map[Ending]int)
	for i := range arrivals {
		counts[arrivals[i].Ending]++
	}
	return counts
}

// Invoice sums up what the api charges.
type Invoice struct {
	Calls   int   // calls billed
	Charged int64 // in millionths of the currency
	// Unknown counts calls that are still running, or were when the process died. They may have been billed.
	Unknown int
}

// Bills returns what the api charges for the arrivals.
func Bills(arrivals []Arrival) Invoice {
	var inv Invoice
	for i := range arrivals {
		inv.Charged += arrivals[i].Charge
		if arrivals[i].Billed {
			inv.Calls++
		}
		if arrivals[i].Ending == Running {
			inv.Unknown++
		}
	}
	return inv
}

// Identity returns the job of an arrival, or "" if unknown.
type Identity func(*Arrival) string

// ByHeader identifies a job by a recorded header, such as Idempotency-Key or X-Job-Id.
func ByHeader(name string) Identity {
	return func(a *Arrival) string { return a.Header(name) }
}

// ByBody identifies a job by its method, path and whole body.
func ByBody(a *Arrival) string { return fingerprint(a.Method, a.Path, a.BodyHash) }

// BySegment identifies a job by a segment of its path: n counts from 1 or, if negative, from the end.
func BySegment(n int) Identity {
	return func(a *Arrival) string { return segment(a.Path, n) }
}

// ByField identifies a job by a field of its JSON body, which must have been kept whole (Options.KeepBody). Dots in
// path separate the names of nested fields.
func ByField(path string) Identity {
	names := strings.Split(path, ".")
	return func(a *Arrival) string {
		value := json.RawMessage(a.Body)
		for _, name := range names {
			var object map[string]json.RawMessage
			if json.Unmarshal(value, &object) != nil {
				return ""
			}
			value = object[name]
		}
		var text string
		if json.Unmarshal(value, &text) == nil {
			return text
		}
		return string(value)
	}
}

// Repeated is a job that was called more than once.
type Repeated struct {
	ID       string
	Arrivals []Arrival // by time, at least two
	Billed   int       // how often it was billed
	Overlap  int       // calls that began while an earlier call of this job was running
}

// CalledTwice returns the jobs that were called more than once, ordered by the time of their first call. It also
// returns the number of arrivals without an identity. A repeat after pushback is no fault: judge by Billed, or first
// remove the arrivals that were answered 429.
func CalledTwice(arrivals []Arrival, by Identity) (repeated []Repeated, unidentified int) {
	at := make(map[string]int)
	var jobs []Repeated
	for _, a := range ByTime(arrivals) {
		id := by(&a)
		if id == "" {
			unidentified++
			continue
		}
		i, known := at[id]
		if !known {
			i = len(jobs)
			at[id] = i
			jobs = append(jobs, Repeated{ID: id})
		}
		jobs[i].add(a)
	}
	return slices.DeleteFunc(jobs, func(r Repeated) bool { return len(r.Arrivals) < 2 }), unidentified
}

func (r *Repeated) add(a Arrival) {
	for i := range r.Arrivals {
		if r.Arrivals[i].Ending == Running || r.Arrivals[i].End > a.At {
			r.Overlap++
			break
		}
	}
	if a.Billed {
		r.Billed++
	}
	r.Arrivals = append(r.Arrivals, a)
}

// Attempts says by which calls of a job its order is judged.
type Attempts string

const (
	// FirstAttempts compares only the first call with each sequence number of a key. It is the zero value.
	FirstAttempts Attempts = ""
	// EveryAttempt compares all calls, so that a retry after a later job's call is an inversion.
	EveryAttempt Attempts = "every"
)

// Inversion is a call that came after a call with a higher sequence number of the same key.
type Inversion struct {
	Key string
	// Before is the earlier arrival, with the highest number until then. After is the later one, with a lower number.
	Before, After       Arrival
	BeforeSeq, AfterSeq int64
}

// Order checks that the sequence numbers of each key never decrease. by must return an arrival's number as decimal
// text. Arrivals without such a number count as unidentified.
func Order(arrivals []Arrival, by Identity, attempts Attempts) (inversions []Inversion, unidentified int) {
	type place struct {
		key string
		seq int64
	}
	seen := make(map[place]struct{})
	highest := make(map[string]Inversion) // by key; only Before is set
	for _, a := range ByTime(arrivals) {
		seq, err := strconv.ParseInt(by(&a), 10, 64)
		if err != nil {
			unidentified++
			continue
		}
		if _, again := seen[place{a.Key, seq}]; again && attempts == FirstAttempts {
			continue
		}
		seen[place{a.Key, seq}] = struct{}{}
		top, known := highest[a.Key]
		if !known || seq >= top.BeforeSeq {
			highest[a.Key] = Inversion{Key: a.Key, Before: a, BeforeSeq: seq}
			continue
		}
		top.After, top.AfterSeq = a, seq
		inversions = append(inversions, top)
	}
	return inversions, unidentified
}
