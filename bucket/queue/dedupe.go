package queue

import (
	"math"
	"slices"
	"sync"
	"time"

	"weir/bucket"
)

// Dedupe holds how long a job's id is known, now and in the past. The configuration may change that time while jobs
// wait, but the time in force when the stream took a message decided whether the message was a new job. Dedupe is safe
// for concurrent use.
type Dedupe struct {
	mu      sync.Mutex // guards what follows
	windows []window   // in the order they were put in force; never empty
}

// window is one value, and the time in which streams may have judged by it: from when its version was stored until
// every stream is known to judge by the next value.
type window struct {
	length   time.Duration
	from, to bucket.Micros
}

// Bounds of how many former values Dedupe remembers.
const (
	mostWindows = 64
	// dedupeDoubt is how far the clocks of two servers may be apart, and how long a replica may need to apply a
	// configuration that NATS already has.
	dedupeDoubt = 2 * time.Second
	// leastRecall is for how long the end of a job is remembered at least, so that a longer value works at once.
	leastRecall = 10 * time.Minute
)

const forever = bucket.Micros(math.MaxInt64)

// NewDedupe returns a Dedupe with one value that has always been in force.
func NewDedupe(length time.Duration) *Dedupe {
	return &Dedupe{windows: []window{{length: length, from: math.MinInt64, to: forever}}}
}

// Changing notes that streams may judge by the value length from a time on. Until Changed is called, they may also
// judge by the value before.
func (d *Dedupe) Changing(length time.Duration, from time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.windows[len(d.windows)-1].length == length {
		return
	}
	if len(d.windows) == mostWindows {
		d.windows = slices.Delete(d.windows, 0, 1)
		d.windows[0].from = math.MinInt64
	}
	d.windows = append(d.windows, window{length, bucket.MicrosOf(from.Add(-dedupeDoubt)), forever})
}

// Changed notes that every stream judges by the newest value from the time by on, or earlier.
func (d *Dedupe) Changed(by time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.windows[:len(d.windows)-1] {
		d.windows[i].to = min(d.windows[i].to, bucket.MicrosOf(by.Add(dedupeDoubt)))
	}
}

// Length returns the newest value.
func (d *Dedupe) Length() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.windows[len(d.windows)-1].length
}

// Reach returns the age of the oldest jobs whose ids may still be known.
func (d *Dedupe) Reach(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	longest := leastRecall
	for _, w := range d.windows {
		if w.to == forever || w.to > bucket.MicrosOf(now.Add(-w.length)) {
			longest = max(longest, w.length)
		}
	}
	return longest
}

// Likeness says how a job relates to an ended job with the same id.
type Likeness int

// The likenesses of a job to the ended job with its id.
const (
	Another Likeness = iota // the id was free again when the job came: it is a new job
	Earlier                 // the job came before the ended one: it still waits, or has come back
	InDoubt                 // the value of dedupe changed at that time, or has changed since
	Same                    // the id was known all the time: it is the ended job
)

// Judge says how a job relates to an ended job with the same id. The ended job was accepted at the time accepted, and
// the other job came at the time came.
func (d *Dedupe) Judge(accepted, came bucket.Micros) Likeness {
	if came < accepted.Add(-dedupeDoubt) {
		return Earlier
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known, free := true, true
	for _, w := range d.windows {
		if w.from > came || w.to < accepted {
			continue
		}
		if accepted.Until(min(w.to, came)) >= w.length {
			known = false
		}
		if w.to >= came && accepted.Until(came) < w.length {
			free = false
		}
	}
	switch {
	case free:
		return Another
	case known:
		return Same
	}
	return InDoubt
}
