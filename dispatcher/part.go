package dispatcher

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"weir/bucket"
)

// part is one partition of an api's queue for as long as this process owns it: taken over again it is another part.
type part struct {
	tenure
	number  int
	bucket  *bucket.Partition
	markers *bucket.Markers
	open    bool        // calls of those lines may start that have been read far enough
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

	replay *replay // until all that was there at the takeover has been read

	intents   []*task // that want an intent
	intending bool    // one is being stored
}

// tenure is by what right a partition is owned.
type tenure struct {
	lease *bucket.Membership // nil where nobody else can own it
	// clean says that the owner before, if there was one, ended all its calls and stored what came of them.
	clean bool
	// ended says that the process of the owner before is known to have ended, and its calls with it.
	ended bool
}

// valid reports whether nobody else can own the partition now.
func (t tenure) valid() bool { return t.lease == nil || t.lease.Valid() }

// maxCacheBytes bounds the messages a partition keeps in memory ahead of their calls; beyond it they are loaded again.
const maxCacheBytes = 8 << 20

func (p *part) keep(e bucket.Entry) {
	if e.Bare {
		return
	}
	size := entrySize(e)
	if p.cacheBytes+size > maxCacheBytes {
		if p.replay != nil {
			p.replay.full = true
		}
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
