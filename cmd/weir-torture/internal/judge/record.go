package judge

import (
	"time"

	"weir/bucket/fault"
)

// Idle names the kills of an idle weir in the record.
const Idle = "idle"

// Kill is a kill -9 of a process.
type Kill struct {
	What  string      // "worker", "server" or idle
	Point fault.Point // the chosen point; "": at random
	At    time.Time
}

// Heard is what weir's log has said about its store.
type Heard struct {
	Restored int             // how often weir said that its store was restored
	Unnamed  map[string]bool // queues that have lost jobs that weir cannot name
}

// SetBack is the restore of a backup. Everything accepted between from and to is lost, and weir must say so.
type SetBack struct{ From, To time.Time }

// Damage is damage to the blocks of one stream. For a single weir it is one message of a queue, and weir was stopped
// meanwhile. For a fleet it is one node's copy, of any stream.
type Damage struct {
	Stream string
	At     time.Time // when the bytes were flipped
	Up     time.Time // when the node was current again; zero: not a fleet
}
