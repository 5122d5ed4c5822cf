// Package ownership shares the partitions of all apis out among the replicas that dispatch.
//
// Who should own what is worked out, not agreed on: rendezvous hashing over the members with an even share of every api, so
// that a replica that comes takes its part and little else moves (rendezvous.go). Who does own what is only ever a claim in
// the registry (bucket/lease).
//
// state decides. It is a plain value: what happened comes in with the time, what is to be done comes out of plan, and the
// end of each action is told back. A Manager is the shell around it: it follows the registry, renews this replica's lease,
// and has a Host open, close and lose partitions. world_test.go runs replicas, clocks and messages in virtual time.
//
// # Why no two replicas start calls of one partition at the same time
//
// Whatever is stopped, lost or late:
//
//  1. A replica starts calls only while its last successful renewal was sent less than 3 s ago, by the longer of its two
//     clocks. It asks when the call starts, and once more when nothing but the first byte is left to be sent.
//  2. A claim is replaced only where it was released, or where its owner's membership has ended: a deletion that named its
//     newest renewal went through. The owner renews on the condition that its last renewal stands, so it can never do so
//     again.
//  3. A membership is ended only by somebody who has seen the same revision for 5 s on his own clock. That revision was
//     written after the owner sent it: by then its 3 s are over, if clocks run apart by less than a fourth, and two
//     seconds more have passed by one that keeps time.
//     Or by somebody who knows that the owner's process has ended (lease.Presence): then it starts no calls, and those that
//     it made have ended.
//  4. A partition is released only when all its calls have ended, and what came of them is stored.
//
// How stale anybody's view is decides how soon a partition moves, not whether it is safe. While the registry itself is
// silent (an election) nobody is taken for dead.
//
// What is left open is a process that is stopped between its last look and the write of the first byte, for two seconds or
// more. Then the fence holds: a new owner publishes its epoch to the partition's weir.o. subject, and the stream refuses
// intents that expect an earlier one.
//
// The simulation found what no run had: a replica gave everything up because a new watch did not show the replica itself.
package ownership
