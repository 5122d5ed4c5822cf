package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"

	"weir/bucket/queue"
	"weir/dispatcher/ownership"
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"

	"golang.org/x/sync/errgroup"
)

// partition is one partition of an api's queue for as long as this process owns it: taken over again it is another partition.
type partition struct {
	schedule.Partition
	ownership.Tenure
	number  int
	name    recorder.Queue // for the flight recorder
	bucket  *queue.Partition
	markers *queue.Markers
	closing bool        // its calls may end, none starts any more
	lost    atomic.Bool // somebody else may own it: nothing about it is stored any more

	stopReading, stopMarkers context.CancelFunc
	reader, writer           errgroup.Group

	// cache holds messages that were read and not needed yet, as far as there is room for them. It is nil when the partition has ended.
	cache      map[uint64]kept
	cacheBytes int64
	holdings   *queue.Holdings

	// untold says that the owner before died and may have begun calls without an intent: it was of an earlier version.
	untold bool

	restored uint64 // the last job of a backup that was put back, 0 for none: see Restoration

	replay *replay // until all that was there at the takeover has been read

	denial holdMark // of an api that denies weir

	telling sync.Mutex          // held while one more loss is noted as told
	told    map[string]toldMark // what was told of the damage of its store, by key; the worker's lock guards it

	intents   []intending // jobs that want an intent
	intending bool        // some are being stored
}

// partitionOf is the tenure that a queue is of.
func partitionOf(q *schedule.KeyQueue) *partition { return q.Partition.Of.(*partition) }
