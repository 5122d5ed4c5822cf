package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"golang.org/x/sync/errgroup"
)

// part is one partition of an api's queue for as long as this process owns it: taken over again it is another part.
type part struct {
	schedule.Partition
	ownership.Tenure
	number  int
	bucket  *queue.Partition
	markers *queue.Markers
	closing bool        // its calls may end, none starts any more
	lost    atomic.Bool // somebody else may own it: nothing about it is stored any more

	stopReading, stopMarkers context.CancelFunc
	reader, writer           errgroup.Group

	// cache holds messages that were read and not needed yet, as far as there is room for them. It is nil when the part has ended.
	cache      map[uint64]kept
	cacheBytes int64
	holdings   *queue.Holdings

	// untold says that the owner before died and may have begun calls without an intent: it was of an earlier version.
	untold bool

	replay *replay // until all that was there at the takeover has been read

	denial holdMark // of an api that denies weir

	intents   []intending // jobs that want an intent
	intending bool        // some are being stored
}

// job is a job that is near its call, or past one, as the lane works it. The lane's lock guards the task in it, and what of it is read
// under the lock; the rest belongs to the goroutine that brings the job on its way: there is one at a time.
type job struct {
	*schedule.Job
	part     *part
	terms    *terms       // it was last made ready by
	message  *ingest.Job  // while near its call
	space    *queue.Space // that it takes in memory then
	orders   chan<- order // to its worker, nil while it has none
	accepted bucket.Micros
	staged   bucket.Micros // when it began to be made ready
	missing  int           // times its message was not found

	taken     []int64  // the costs of its last call, as far as its answer told them
	unsettled []string // limits of which that answer was to tell, and did not
	attempts  int      // its calls that count
	status    int      // that the api answered last, 0 if it never did
	doubt     doubt    // what may have come of its calls so far
	crashes   int      // calls over which weir crashed
	// answeredAt is where the record stands in the ledger of the last call that the api answered, 0 for none.
	answeredAt uint64

	lost     *foundIntent // of a call nobody knows the outcome of, until that is settled
	intents  []*intentMark
	intended int // the call number its newest intent covers, 0 for none
	// intendedBy are the terms that intent tells of.
	intendedBy *terms
	// intendedAt is when that intent was stored, by the server; zero when all that may have come of it has been looked up.
	intendedAt time.Time
	markSeq    uint64   // of its retry mark, 0 for none
	ends       []uint64 // of the marks that say that it ends

	why     string        // an operator cancelled it
	ended   chan struct{} // closed when the job has ended, if somebody waits for that
	outcome string        // then
}

// partOf is the tenure that a line is of.
func partOf(q *schedule.KeyQueue) *part { return q.Partition.Of.(*part) }

// jobLocked is the lane's own of a task.
func jobLocked(j *schedule.Job) *job {
	if j.Of == nil {
		j.Of = &job{Job: j, part: partOf(j.Queue)}
	}
	return j.Of.(*job)
}

// intentMark is one stored intent message; it may go when none of its jobs needs it.
type intentMark struct {
	seq   uint64
	users int
}
