package plan

import "time"

// Properties of a fleet: a number of partitions that two, three or four replicas can share evenly, and a limit of
// concurrent calls over all keys.
const (
	fleetPartitions = 12
	FleetInFlight   = 8
)

// QuotaPer is the length of the window of a fleet's quota.
const QuotaPer = 20 * time.Second

// Nodes is the number of nodes in the NATS cluster. Each has a copy of every stream.
const Nodes = 3
