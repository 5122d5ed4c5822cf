package flowsamples

import "time"

// Part is what happened in one part of the time.
type Part struct {
	At    int64 `json:"at"`    // its end, in milliseconds since 1970
	Level int   `json:"level"` // unfinished jobs at its end
	Came  int64 `json:"came"`  // jobs
	// Left are calls that ended, of an api; jobs that are not in the bucket any more, of a key.
	Left    int64 `json:"left"`
	Refused int64 `json:"refused"` // jobs that found no room, of an api
}

// Bytes is what a Part takes in memory.
const Bytes = 40

// line is the past of an api or of a key, oldest first.
type line struct {
	parts   []Part
	last    counts
	level   int       // when it was looked at last
	at      time.Time // when it was looked at last
	counted bool      // last is
	owned   int       // partitions, of an api
}

// counts are what only grows until something begins anew.
type counts struct{ came, left, refused uint64 }

// add notes what is at now. What has become less has begun anew: all of it is new then.
func (l *line) add(now time.Time, level int, c counts, most int) {
	if l.counted {
		grown := func(was, is uint64) int64 {
			if is < was {
				return int64(is)
			}
			return int64(is - was)
		}
		if len(l.parts) == most {
			copy(l.parts, l.parts[1:])
			l.parts = l.parts[:most-1]
		}
		l.parts = append(l.parts, Part{now.UnixMilli(), level, grown(l.last.came, c.came), grown(l.last.left, c.left), grown(l.last.refused, c.refused)})
	}
	l.last, l.level, l.at, l.counted = c, level, now, true
}
