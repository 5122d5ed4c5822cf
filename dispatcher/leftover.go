package dispatcher

import "weir/bucket"

// An owner that was cut off from the servers goes on with the calls that it has begun: what it knows of them may be stored
// yet, and cutting them off would make outcomes unknown that are not, at every election that takes longer than a lease. It
// cannot be told from one that died, unless its process is known to have ended (bucket.Registry.Gone): then the kernel has
// closed its connections. Otherwise its calls count as its keys' calls in flight, for as long as one may take; it began
// its last two seconds before anybody could take the partition.

// leftUntil is until when calls of an owner that did not give the partition up may still run, 0 when none does. An owner whose
// process has ended may itself have had to count calls of one before: until it had had the partition for as long as a call may
// take. Called with the lock held.
func (l *lane) leftUntil(p *part) bucket.Micros {
	timeout := l.s.terms.api.Timeout
	if p.lease == nil || p.ended && p.markers.Held() > timeout+serverSkew {
		return 0
	}
	return l.now().Add(timeout)
}

// leave reckons how many calls of a line the owner before may have left under way. resume has counted those that have an
// intent. Called with the lock held.
func (l *lane) leave(line *line) {
	switch {
	case line.part.leftover == 0:
		line.left = 0
	case !l.intendsAll(line):
		line.left = int32(min(line.depth(), int(min(line.limits.InFlight, 1<<30))))
	}
}

// crowded is until when a line must not be called because calls left under way may be all that its key may have in
// flight; 0 when they are fewer.
func (l *line) crowded() bucket.Micros {
	if l.left == 0 || int64(l.left) < l.limits.InFlight {
		return 0
	}
	return l.part.leftover
}

// free is how many calls more the line may have asked for or under way, and when that may change by itself.
func (l *line) free(now bucket.Micros) (n int64, again bucket.Micros) {
	n, again = l.limits.InFlight-int64(l.count(asking, granted, calling)), never
	if l.left > 0 && l.part.leftover > now {
		n, again = n-int64(l.left), l.part.leftover
	}
	return n, again
}
