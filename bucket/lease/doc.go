// Package lease lets the replicas of one weir find each other, and ensures that each partition has at most one owner at
// a time.
//
// A Registry is a key-value bucket. In it each replica has a Membership, which is its lease, and one claim for each
// partition that it owns. A claim is valid for as long as the membership of the session that made the claim is. A Lease
// is simpler: it gives one process a right that only one process may have, for example to run a redrive.
//
// The package knows partitions by api and number only. It decides nothing: dispatcher/ownership works out which replica
// should own which partition.
//
// # What must hold
//
//   - Every write names the revision that it replaces. A replica that loses a race gets an error.
//   - A replica acts on its membership only for Right after it sent its last renewal, by the longer of its two clocks.
//     Other replicas end the membership only if they saw it unchanged for Term, or know that its process has ended.
//   - A membership that was ended can never be renewed: the write that ended it named its newest renewal.
package lease
