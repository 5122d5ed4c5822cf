// Package lease tells the replicas of one weir of each other, and keeps one of them the owner of what only one may have.
//
// A Registry is a key-value bucket. In it each replica has a Membership, which is its lease, and one claim for each
// partition it owns; a claim hangs on the membership that made it. A Lease is the plainer right of one process, for what
// only one may do, such as a redrive.
//
// The package knows partitions by api and number only. It decides nothing: who should own what is worked out in
// dispatcher/ownership.
//
// # What must hold
//
//   - Every write names the revision that it replaces. Who lost a race is told so.
//   - A membership is valid for Term from when its last renewal was sent, by the longer of its owner's two clocks.
//   - A membership that was ended can never be renewed again: its end named its newest renewal.
package lease
