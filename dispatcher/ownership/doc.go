// Package ownership distributes the partitions of all apis among the replicas that dispatch.
//
// Replicas do not negotiate which of them owns a partition. Each replica computes it, by rendezvous hashing over the
// members, with an even share of every api (rendezvous.go). So a new replica takes its share, and few other partitions
// move. But a replica owns a partition only by its claim in the registry (bucket/lease).
//
// state decides. It is a plain value: events come in with the time, plan returns the actions to take, and the caller
// reports the end of each action. A Manager is the shell around state. The Manager follows the registry, renews this
// replica's lease, and makes a Host open, close and lose partitions. world_test.go runs replicas, clocks and messages
// in virtual time, with all their faults. scale_test.go runs fleets of up to 100 replicas, without faults.
//
// # Why no two replicas start calls of one partition at the same time
//
// This holds whatever is stopped, lost or late:
//
//  1. A replica starts a call only if it sent its last successful renewal less than 3 s ago. It has two clocks, and the
//     longer time counts. It checks this when the call starts, and once more when only the first byte is left to be
//     sent.
//  2. A replica replaces a claim only if the claim was released, or if its owner's membership has ended: a deletion
//     that named the membership's newest renewal went through. The owner renews on the condition that its last renewal
//     is still the newest write, so it can never renew again.
//  3. A replica ends another replica's membership only after it has seen the same revision for 5 s by its own clock.
//     The owner sent that revision before it was written. So by then the owner's 3 s are over if the clocks' speeds
//     differ by less than a fourth. With accurate clocks, they ended two seconds before. A replica that knows that the
//     owner's process has ended (lease.Presence) need not wait: that process starts no calls, and the calls that it
//     made have ended.
//  4. A replica releases a partition only when it starts no more calls of it. Usually its calls have then ended and
//     their outcomes are stored. If the partition was dropped before that, its stream tells the next owner
//     (queue.Markers.AfterDeath).
//
// A stale view only delays when a partition moves; it never makes the move unsafe. While the registry itself does not
// answer (an election), no replica counts as dead.
//
// One case remains: a process that is stopped for two seconds or more between its last check and the write of the first
// byte. Its call is made late. The fence stops later calls: a new owner publishes its epoch to the partition's
// weir.o. subject, and the stream refuses intents of earlier epochs.
//
// The simulation found a bug that no other test had found: a replica gave everything up because a new watch did not
// show the replica itself.
package ownership
