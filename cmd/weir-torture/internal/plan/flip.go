package plan

// Part is a part of a node's store, as a pattern of the files that it consists of.
type Part string

// The parts in which bytes are flipped, in turn.
const (
	OfQueue     Part = "*/streams/WEIR_" + APIName + "_*/msgs/*.blk" // jobs and marks
	OfKept      Part = "*/streams/WEIR_[A-Z]*/msgs/*.blk"            // results, records, letters and events
	OfState     Part = "*/streams/*/msgs/index.db"
	OfSnapshots Part = "*/_js_/S-*/snapshots/*"
	OfCluster   Part = "*/_js_/_meta_/snapshots/*" // which streams there are
)

var parts = []Part{OfQueue, OfKept, OfState, OfSnapshots, OfCluster}

// OfMessages reports whether the part is blocks of messages.
func (p Part) OfMessages() bool { return p == OfQueue || p == OfKept }
