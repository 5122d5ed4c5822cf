package dispatcher

import (
	"context"
	"sync/atomic"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/ownership"

	"golang.org/x/sync/errgroup"
)

// part is one partition of an api's queue for as long as this process owns it: taken over again it is another part.
type part struct {
	ownership.Tenure
	number  int
	bucket  *queue.Partition
	markers *queue.Markers
	open    bool        // calls of those lines may start that have been read far enough
	stalled bool        // too much that is finished is not deleted yet
	closing bool        // its calls may end, none starts any more
	lost    atomic.Bool // somebody else may own it: nothing about it is stored any more

	stopReading, stopMarkers context.CancelFunc
	reader, writer           errgroup.Group

	// cache holds messages that were read and not needed yet, as far as there is room for them. It is nil when the part has ended.
	cache      map[uint64]kept
	cacheBytes int64
	holdings   *queue.Holdings

	// deadlines are those of its waiting jobs that have one: some 40 bytes each.
	deadlines map[uint64]bucket.Micros

	// untold says that the owner before died and may have begun calls without an intent: it was of an earlier version.
	untold bool

	// leftover is until when calls of an owner that did not give the partition up may still run; 0 if none do.
	leftover bucket.Micros

	replay *replay // until all that was there at the takeover has been read

	denial holdMark // of an api that denies weir

	intents   []intending // jobs that want an intent
	intending bool        // some are being stored
}
