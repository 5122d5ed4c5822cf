package torture

import (
	"math/rand/v2"
	"time"

	"weir/bucket/lease"
)

// The faults of a fleet.
const (
	killReplica  kind = "kill -9 of a replica"
	stopReplica  kind = "SIGSTOP of a replica"
	cutNATS      kind = "replica cut off from NATS"
	cutRedis     kind = "replica cut off from Redis"
	cutAPI       kind = "replica cut off from the api"
	cutNode      kind = "NATS node cut off"
	killNode     kind = "kill -9 of a NATS node"
	killRedis    kind = "kill -9 of Redis"
	loseRedis    kind = "Redis lost its file"
	setBackRedis kind = "Redis came back older"
	rollReplicas kind = "rolling restart of weir"
	rollNodes    kind = "rolling restart of NATS"
)

// strike is one planned fault of a fleet. Each is over before the next begins.
type strike struct {
	kind    kind
	target  int           // index of the replica or node
	pause   time.Duration // before the strike
	last    time.Duration // of a cut or a stop, or until the killed process is started again
	held    held          // what happens to the bytes that a cut has held up
	apart   bool          // a cut of a node also cuts it off from its clients; after scaleStream the node restarts at once
	orderly bool          // a node is stopped by a signal, not killed
	part    part          // the part of a node's store in which bytes are flipped
	seed    uint64        // determines the damaged bytes, or the stream that is scaled
	behind  time.Duration // how far the file that Redis gets back lags
}

// held says what happens to the bytes that a cut has held up.
type held string

const (
	late held = "late" // they arrive when the cut ends
	lost held = "lost" // all connections break when the cut ends
)

// longerThanLease is the least duration of a fault during which a lease is not renewed. By its end other replicas have
// taken over.
const longerThanLease = lease.Term + 2*time.Second

// newStrikes returns the faults in a random order, which r determines.
func newStrikes(r *rand.Rand, o *Options) []strike {
	var all []strike
	add := func(n int, k kind, targets int, least, most time.Duration) {
		for i := range n {
			s := strike{kind: k, target: i % targets, last: between(r, least, most), held: late, apart: r.IntN(2) == 0}
			if r.IntN(2) == 0 || k == cutAPI {
				s.held = lost // a call that the network delivers ten seconds late exceeds the rate whatever weir does
			}
			all = append(all, s)
		}
	}
	add(o.WorkerKills, killReplica, o.Replicas, 0, 2*lease.Term)
	add(o.Stops, stopReplica, o.Replicas, longerThanLease, longerThanLease+5*time.Second)
	add(o.Fleet.CutNATS, cutNATS, o.Replicas, longerThanLease, longerThanLease+7*time.Second)
	add(o.Fleet.CutRedis, cutRedis, o.Replicas, longerThanLease, longerThanLease+7*time.Second)
	add(o.Fleet.CutAPI, cutAPI, o.Replicas, longerThanLease, longerThanLease+7*time.Second)
	add(o.Fleet.CutNode, cutNode, nodes, longerThanLease+4*time.Second, 35*time.Second)
	add(o.ServerKills, killNode, nodes, 0, 8*time.Second)
	add(o.Fleet.RedisKills, killRedis, 1, 0, 4*time.Second)
	add(o.Fleet.RedisLosses, loseRedis, 1, 0, 4*time.Second)
	add(o.Fleet.Rolls, rollReplicas, 1, 0, 0)
	add(o.Fleet.ServerRolls, rollNodes, 1, 0, 0)
	add(o.ConfigChanges, changeConfig, max(1, o.ConfigChanges), 0, 0)
	add(o.Fleet.RedisSetbacks, setBackRedis, 1, 0, 4*time.Second)
	add(o.Fleet.FlipNodes, flipNode, nodes, 0, 4*time.Second)
	add(o.PowerLosses, killNodes, 1, 0, 4*time.Second)
	add(o.Fleet.DeleteRestarts, restartDeleted, nodes, 0, 4*time.Second)
	add(o.Fleet.Scales, scaleStream, 1, time.Second, 6*time.Second)
	flips := int(o.Seed % uint64(len(parts)))
	for i := range all {
		s := &all[i]
		switch s.kind {
		case setBackRedis:
			s.behind = between(r, 500*time.Millisecond, 6*time.Second)
		case flipNode:
			s.part, s.seed = parts[flips%len(parts)], r.Uint64()
			s.orderly = !s.part.ofMessages() || r.IntN(2) == 0 // a killed node may lack files of the other parts
			flips++
		case restartDeleted, scaleStream:
			s.orderly, s.seed = r.IntN(2) == 0, r.Uint64()
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range all {
		all[i].pause = between(r, 500*time.Millisecond, 2*time.Second)
	}
	return all
}
