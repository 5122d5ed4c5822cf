package plan

// Kind is a kind of fault.
type Kind string

// The faults of what the nodes of a fleet have stored. After each of them every stream must get all its copies again.
const (
	FlipNode       Kind = "bytes of a NATS node flipped"
	CutPower       Kind = "power of all NATS nodes cut"
	KillNodes      Kind = "kill -9 of all NATS nodes" // in place of CutPower, if the nodes have no drives
	RestartDeleted Kind = "NATS node after many deletes"
	ScaleStream    Kind = "stream scaled to one and back"
)

// OfStores reports whether a fault is one of what the nodes have stored.
func (k Kind) OfStores() bool {
	switch k {
	case FlipNode, CutPower, KillNodes, RestartDeleted, ScaleStream:
		return true
	}
	return false
}

// KillIdle is the kind under which kills of an idle weir are counted.
const KillIdle Kind = "kill -9 while nothing is queued"

// Takeover is the kind under which takeovers are counted.
const Takeover Kind = "taken over by a second weir"

// The faults other than the ends of weir itself.
const (
	KillServer Kind = "kill -9 of the server"
	StopWorker Kind = "SIGSTOP of weir"
	StopServer Kind = "SIGSTOP of the server"
	CutNetwork Kind = "connections to the api slow or cut"
	FillDisk   Kind = "full disk"
	Revoke     Kind = "credentials revoked"
)

// The faults of the store, if the server is inside weir.
const (
	PutBack   Kind = "backup put back"
	FlipBytes Kind = "eight bytes of a queue flipped"
)

// LosePower is the kind under which losses of power are counted.
const LosePower Kind = "power lost"
