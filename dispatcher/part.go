package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"weir/bucket"
)

// part is one partition of an api's queue for as long as this process owns it: taken over again it is another part.
type part struct {
	tenure
	number  int
	bucket  *bucket.Partition
	markers *bucket.Markers
	open    bool        // read up to the takeover: calls may start
	stalled bool        // too much that is finished is not deleted yet
	closing bool        // its calls may end, none starts any more
	lost    atomic.Bool // somebody else may own it: nothing about it is stored any more

	stopReading, stopMarkers context.CancelFunc
	reader, writer           errgroup.Group

	// cache holds messages that were read and not needed yet, as far as its bound allows.
	cache      map[uint64]bucket.Entry
	cacheBytes int

	// deadlines are those of its waiting jobs that have one: some 40 bytes each.
	deadlines map[uint64]bucket.Micros

	// careful is the newest job that was there when the owner before died, 0 if it did not die: up to it intents are
	// written for every api, so that a job that kills its owner is found out.
	careful uint64

	// leftover is until when calls of an owner that did not give the partition up may still run; 0 if none do.
	leftover bucket.Micros

	replay *replay // while not open

	intents   []*task // that want an intent
	intending bool    // one is being stored
}

// tenure is by what right a partition is owned.
type tenure struct {
	lease *bucket.Membership // nil where nobody else can own it
	// clean says that the owner before, if there was one, ended all its calls and stored what came of them.
	clean bool
}

// valid reports whether nobody else can own the partition now.
func (t tenure) valid() bool { return t.lease == nil || t.lease.Valid() }

// maxCacheBytes bounds the messages a partition keeps in memory ahead of their calls; beyond it they are loaded again.
const maxCacheBytes = 8 << 20

func (p *part) keep(e bucket.Entry) {
	size := entrySize(e)
	if p.cacheBytes+size > maxCacheBytes {
		return
	}
	p.cache[e.Seq] = e
	p.cacheBytes += size
}

func (p *part) takeKept(seq uint64) (bucket.Entry, bool) {
	e, ok := p.cache[seq]
	if ok {
		delete(p.cache, seq)
		p.cacheBytes -= entrySize(e)
	}
	return e, ok
}

// entrySize is what a kept message costs, its header's map included.
func entrySize(e bucket.Entry) int {
	size := len(e.Data) + 512
	for name, values := range e.Header {
		size += len(name)
		for _, v := range values {
			size += len(v)
		}
	}
	return size
}

// replay is what the markers of a stream say, gathered until all of them are read.
type replay struct {
	intents map[uint64]replayedIntent // by job
	marks   map[uint64]replayedMark   // by job
	jobs    map[uint64]replayedJob
	twins   map[uint64]twin // jobs under ids of jobs that have ended
}

type replayedJob struct {
	line     *line
	accepted bucket.Micros
}

// of reports whether a marker that names a job's time is of the job that stands at its sequence now. A call that ran while a
// server lost its last writes leaves its marker behind the job that has its sequence since.
func (r *replay) of(seq uint64, accepted bucket.Micros) bool {
	j, ok := r.jobs[seq]
	return ok && (accepted == 0 || accepted == j.accepted)
}

type replayedIntent struct {
	call       int
	mark       *intentMark
	repeatable bool
	deaths     int
	epoch      uint64
	stored     time.Time
}

// overrules reports whether a call may have been made after the mark of an end was decided on: the intent stands behind it, or
// is of a later owner. A mark may arrive late, sent by an owner that had the right to and lost it while its connection stalled;
// whoever took the partition over knew nothing of it.
func (i *replayedIntent) overrules(end *replayedMark) bool {
	return i.mark.seq > end.seq || i.epoch > end.Epoch && end.Epoch != 0
}

type replayedMark struct {
	bucket.RetryMark
	seq uint64
}

func newReplay() *replay {
	return &replay{
		intents: map[uint64]replayedIntent{}, marks: map[uint64]replayedMark{}, jobs: map[uint64]replayedJob{}, twins: map[uint64]twin{},
	}
}
