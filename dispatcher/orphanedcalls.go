package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// An owner that was cut off from the servers goes on with the calls that it has begun: what it knows of them may be stored
// yet, and cutting them off would make outcomes unknown that are not, at every election that takes longer than a lease. It
// cannot be told from one that died, unless its process is known to have ended (lease.Registry.Gone): then the kernel has
// closed its connections. Otherwise its calls count as its keys' calls in flight, for as long as one may take; it began
// its last two seconds before anybody could take the partition. How long that is the intents tell: the timeout may be
// shorter by now.

// leftUntilLocked is until when calls of an owner that did not give the partition up may still run, 0 when none does. An owner
// whose process has ended may itself have had to count calls of one before: until it had had the partition for as long as a
// call may take.
func (p *partition) leftUntilLocked() bucket.Micros {
	timeout := p.w.terms.api.Timeout
	for _, f := range p.replay.found {
		for i := range f.intents {
			timeout = max(timeout, f.intents[i].Timeout)
		}
	}
	if p.Lease == nil || p.Ended && p.markers.Held() > timeout+ledger.ServerSkew {
		return 0
	}
	return p.w.now().Add(timeout)
}

// leaveLocked reckons how many calls of a queue the owner before may have left under way. resumeLocked has counted those that have an
// intent.
func (p *partition) leaveLocked(q *schedule.KeyQueue) {
	switch {
	case p.Leftover == 0:
		q.Orphaned = 0
	case p.untoldLocked(q):
		q.Orphaned = int32(min(q.Depth(), int(min(q.Limits.InFlight, 1<<30))))
	}
}

// unsureLocked reports whether a call of a queue may have been running when the owner before ended, of which nothing else is known: an intent
// tells, or there may be a call without one.
func (p *partition) unsureLocked(q *schedule.KeyQueue) bool {
	return !p.Clean && (q.Unsure || p.untoldLocked(q))
}

// slowBucket is from which interval on earlier versions wrote intents of the calls of every api.
const slowBucket = 10 * time.Second

// untoldLocked reports whether calls of a queue may have been under way, when the owner before died, that have no intent:
// earlier versions wrote none where an api was idempotent and the key not slow. What the api was then nobody knows. It matters
// once, after such a version has died.
func (p *partition) untoldLocked(q *schedule.KeyQueue) bool {
	return p.untold && p.w.s.IntervalOf(q) < slowBucket
}
