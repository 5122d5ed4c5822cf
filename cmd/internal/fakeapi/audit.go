package fakeapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// The functions below judge recorded arrivals, of a running api or of a ledger read back. They change nothing, may be called with
// arrivals in any order, and need memory in proportion to their number.

// ByTime returns the arrivals ordered by time: the same slice if it is ordered already, else a copy.
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

// CountByStatus counts arrivals by the status answered; 0 is no answer, which includes calls still running.
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

// Invoice is what the api charges.
type Invoice struct {
	Calls   int   // calls billed
	Charged int64 // in millionths of the currency
	// Unknown calls were running when the process died or are running still: they may have been billed.
	Unknown int
}

// Bills adds up what the arrivals cost.
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

// Identity says which job an arrival belongs to; empty if it cannot tell.
type Identity func(*Arrival) string

// ByHeader identifies a job by a recorded header, such as Idempotency-Key or X-Job-Id.
func ByHeader(name string) Identity {
	return func(a *Arrival) string { return a.Header(name) }
}

// ByBody identifies a job by its method, path and whole body.
func ByBody(a *Arrival) string { return fingerprint(a.Method, a.Path, a.BodyHash) }

// BySegment identifies a job by a segment of its path, counted from 1, or from the end if negative.
func BySegment(n int) Identity {
	return func(a *Arrival) string { return segment(a.Path, n) }
}

// ByField identifies a job by a field of its JSON body, which must have been kept whole (Options.KeepBody). Nested fields are
// separated by dots.
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
	Arrivals []Arrival // by time, at least 2
	Billed   int       // how often it was billed
	Overlap  int       // calls that began while an earlier one of this job was still running
}

// CalledTwice returns the jobs called more than once, by the time of their first call, and how many arrivals could not be told to
// any job. A repeat after pushback is no fault: judge by Billed, or leave the arrivals answered 429 out before.
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

// Attempts says which calls of a job its order is judged by.
type Attempts string

const (
	// FirstAttempts looks at the first call with each sequence number of a key. It is the zero value.
	FirstAttempts Attempts = ""
	// EveryAttempt looks at all: a retry overtaken by a later job is an inversion.
	EveryAttempt Attempts = "every"
)

// Inversion is a call that came after one with a higher sequence number of the same key.
type Inversion struct {
	Key string
	// Before is the earlier arrival, with the highest number until then; After the later one, with a lower number.
	Before, After       Arrival
	BeforeSeq, AfterSeq int64
}

// Order checks that the sequence numbers of each key never go backwards. by yields the number as decimal text. Arrivals without one
// are counted as unidentified.
func Order(arrivals []Arrival, by Identity, attempts Attempts) (inversions []Inversion, unidentified int) {
	type place struct {
		key string
		seq int64
	}
	seen := make(map[place]struct{})
	highest := make(map[string]Inversion) // of each key, its Before
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
