package takeover

import (
	"weir/bucket"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// An owner that is cut off from the servers continues the calls that it has begun. Their outcomes may still be stored.
// If it ended the calls instead, outcomes would become unknown at every election that takes longer than a lease. The
// next owner cannot tell such an owner from a dead one, unless that owner's process is known to have ended
// (lease.Registry.Gone): then the kernel has closed its connections. Otherwise the next owner counts the former owner's
// calls as calls in flight of their keys, for as long as a call may take. The former owner began its last call at least
// two seconds before another replica could take the partition. The intents say how long a call may take, because the
// configured timeout may be shorter by now.

// leftUntilLocked returns until when calls of an owner that did not give the partition up may still run, 0 if none can.
// If that owner's process has ended, none of its own calls runs. But it may have counted calls of its predecessor,
// unless it owned the partition for longer than a call may take.
func (p *reader) leftUntilLocked() bucket.Micros {
	timeout := p.W.Terms.API.Timeout
	for _, f := range p.replay.found {
		for i := range f.intents {
			timeout = max(timeout, f.intents[i].Timeout)
		}
	}
	if p.Lease == nil || p.Ended && p.Markers.Held() > timeout+ledger.ServerSkew {
		return 0
	}
	return p.W.Now().Add(timeout)
}

// leaveLocked clears the count of calls that followLocked took for running, if the former owner left none under way.
func (p *reader) leaveLocked(q *schedule.KeyQueue) {
	if p.Leftover == 0 {
		q.Orphaned = 0
	}
}

// unsureLocked reports whether a call of the queue that only an intent tells of may have been running when the former
// owner ended. If that owner's epoch is damaged, its intents may be damaged too, so unsureLocked returns true for every
// queue.
func (p *reader) unsureLocked(q *schedule.KeyQueue) bool {
	return !p.Clean && (q.Unsure || p.Markers.Unreadable())
}
