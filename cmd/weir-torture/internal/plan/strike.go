package plan

import (
	"math/rand/v2"
	"time"

	"weir/bucket/lease"
)

// The faults of a fleet.
const (
	KillReplica  Kind = "kill -9 of a replica"
	StopReplica  Kind = "SIGSTOP of a replica"
	CutNATS      Kind = "replica cut off from NATS"
	CutRedis     Kind = "replica cut off from Redis"
	CutAPI       Kind = "replica cut off from the api"
	CutNode      Kind = "NATS node cut off"
	KillNode     Kind = "kill -9 of a NATS node"
	KillRedis    Kind = "kill -9 of Redis"
	LoseRedis    Kind = "Redis lost its file"
	SetBackRedis Kind = "Redis came back older"
	RollReplicas Kind = "rolling restart of weir"
	RollNodes    Kind = "rolling restart of NATS"
)

// Strike is one planned fault of a fleet. Each is over before the next begins.
type Strike struct {
	Kind    Kind
	Target  int           // index of the replica or node
	Pause   time.Duration // before the strike
	Last    time.Duration // of a cut or a stop, or until the killed process is started again
	Held    Held          // what happens to the bytes that a cut has held up
	Apart   bool          // a cut of a node also cuts it off from its clients
	Orderly bool          // a node is stopped by a signal, not killed
	Part    Part          // of a node's store, in which bytes are flipped
	Seed    uint64        // determines the damaged bytes, the stream that is scaled, or the queue whose blocks are rewritten
	Behind  time.Duration // how much older the file is that Redis gets back
	Late    time.Duration // from the moment at which a block is rewritten to the power cut
}

// Held says what happens to the bytes that a cut has held up.
type Held string

// What may happen to them.
const (
	late Held = "late" // they arrive when the cut ends
	Lost Held = "lost" // all connections break when the cut ends
)

// longerThanLease is the least duration of a fault during which a lease is not renewed. By its end other replicas have
// taken over.
const longerThanLease = lease.Term + 2*time.Second

// latestCut is the longest time from the moment at which a rewritten block is seen to the power cut. Early cuts come
// while the new block is written, late ones after it has replaced the old one.
const latestCut = 20 * time.Millisecond

// newStrikes returns the faults in a random order, which r determines.
func newStrikes(r *rand.Rand, o *Options) []Strike {
	var all []Strike
	add := func(n int, k Kind, targets int, least, most time.Duration) {
		for i := range n {
			s := Strike{Kind: k, Target: i % targets, Last: between(r, least, most), Held: late, Apart: r.IntN(2) == 0}
			if r.IntN(2) == 0 || k == CutAPI {
				s.Held = Lost // a call that the network delivers ten seconds late exceeds the rate whatever weir does
			}
			all = append(all, s)
		}
	}
	add(o.WorkerKills, KillReplica, o.Replicas, 0, 2*lease.Term)
	add(o.Stops, StopReplica, o.Replicas, longerThanLease, longerThanLease+5*time.Second)
	add(o.Fleet.CutNATS, CutNATS, o.Replicas, longerThanLease, longerThanLease+7*time.Second)
	add(o.Fleet.CutRedis, CutRedis, o.Replicas, longerThanLease, longerThanLease+7*time.Second)
	add(o.Fleet.CutAPI, CutAPI, o.Replicas, longerThanLease, longerThanLease+7*time.Second)
	add(o.Fleet.CutNode, CutNode, Nodes, longerThanLease+4*time.Second, 35*time.Second)
	add(o.ServerKills, KillNode, Nodes, 0, 8*time.Second)
	add(o.Fleet.RedisKills, KillRedis, 1, 0, 4*time.Second)
	add(o.Fleet.RedisLosses, LoseRedis, 1, 0, 4*time.Second)
	add(o.Fleet.Rolls, RollReplicas, 1, 0, 0)
	add(o.Fleet.ServerRolls, RollNodes, 1, 0, 0)
	add(o.ConfigChanges, ChangeConfig, max(1, o.ConfigChanges), 0, 0)
	add(o.Fleet.RedisSetbacks, SetBackRedis, 1, 0, 4*time.Second)
	add(o.Fleet.FlipNodes, FlipNode, Nodes, 0, 4*time.Second)
	add(o.PowerLosses, CutPower, 1, 0, 4*time.Second)
	add(o.Fleet.DeleteRestarts, RestartDeleted, Nodes, 0, 4*time.Second)
	add(o.Fleet.Scales, ScaleStream, 1, time.Second, 6*time.Second)
	flips := int(o.Seed % uint64(len(parts)))
	for i := range all {
		s := &all[i]
		switch s.Kind {
		case SetBackRedis:
			s.Behind = between(r, 500*time.Millisecond, 6*time.Second)
		case FlipNode:
			s.Part, s.Seed = parts[flips%len(parts)], r.Uint64()
			s.Orderly = !s.Part.OfMessages() || r.IntN(2) == 0 // a node that was killed need not have the others
			flips++
		case CutPower:
			s.Seed, s.Late = r.Uint64(), between(r, 0, latestCut)
		case RestartDeleted, ScaleStream:
			s.Orderly, s.Seed = r.IntN(2) == 0, r.Uint64()
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range all {
		all[i].Pause = between(r, 500*time.Millisecond, 2*time.Second)
	}
	return all
}
