package dispatcher

import (
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

// leaveLocked forgets the calls that resumeLocked counted by their intents, where the owner before left none under way.
func (p *partition) leaveLocked(q *schedule.KeyQueue) {
	if p.Leftover == 0 {
		q.Orphaned = 0
	}
}

// unsureLocked reports whether a call of a queue may have been running when the owner before ended, of which only an intent is known.
func (p *partition) unsureLocked(q *schedule.KeyQueue) bool { return !p.Clean && q.Unsure }
