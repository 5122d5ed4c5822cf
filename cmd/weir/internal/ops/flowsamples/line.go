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

// Bytes is the size of a Part in memory.
const Bytes = 40

// line is the recent past of an api or a key, oldest part first.
type line struct {
	parts   []Part
	last    counts
	level   int       // at the last sample
	at      time.Time // of the last sample
	counted bool      // last is set
	owned   int       // for an api: the number of partitions that this replica owns
}

// counts are counters that grow until their source restarts.
type counts struct{ came, left, refused uint64 }

// add appends a part with the growth of the counters since the last sample. If a counter fell, its source has
// restarted, so the counter's whole value is growth. add keeps the newest most parts.
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
