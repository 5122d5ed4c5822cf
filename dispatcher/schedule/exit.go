package schedule

import (
	"math"

	"weir/bucket"
)

// exit bounds the jobs that ask for a slot or have one, and whose calls have not left. A job that gets its slot while the
// process is busy with too many others misses it, after most of a call's work. If it then asked again together with all
// of the others, they would miss their slots again: a busy machine would give up hundreds of slots for each call. So the
// bound follows from what was missed, as the window of a connection follows from lost packets: it is halved by a missed
// slot, and grows by the calls that leave in time.
type exit struct {
	leaving int           // jobs on their way
	most    float64       // the bound, at least 1
	half    float64       // below it the bound grows by one with each call that leaves, above it with each round of calls
	cut     bucket.Micros // when the bound was halved last
}

// firstExit is the bound at the start. It grows by one with each call that leaves, until a slot is missed.
const firstExit = 256

func newExit() exit { return exit{most: firstExit, half: math.MaxInt32} }

// isFull reports whether no other job may ask for a slot.
func (e *exit) isFull() bool { return e.room() <= 0 }

// room returns how many other jobs may ask for a slot.
func (e *exit) room() int { return int(e.most) - e.leaving }

// enter counts a job on its way, once.
func (e *exit) enter(j *Job) {
	if !j.leaving {
		j.leaving = true
		e.leaving++
	}
}

// leave stops counting a job, if it is counted, because its call has left or it has no slot any more.
func (e *exit) leave(j *Job) {
	if j.leaving {
		j.leaving = false
		e.leaving--
	}
}

// inTime raises the bound, but not above most, because a call left in its slot.
func (e *exit) inTime(most int) {
	by := 1.0
	if e.most >= e.half {
		by = 1 / e.most
	}
	e.most = min(e.most+by, float64(max(most, 1)))
}

// missed halves the bound because a slot was missed. It ignores a slot that lies before the last halving, because the
// bound was still the former, higher one at that time.
func (e *exit) missed(slot, now bucket.Micros) {
	if slot < e.cut {
		return
	}
	e.cut, e.half = now, max(1, e.most/2)
	e.most = e.half
}
