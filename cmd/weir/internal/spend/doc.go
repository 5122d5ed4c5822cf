// Package spend adds up what was spent, from the ledger.
//
// A call counts by how it ended: what was billed, and apart from it what is in doubt, since nobody knows whether the api took it for
// done. ledger.Spending says so in one place, for this package, for verify and for the metrics, so that they all tell the same number
// of the same calls. A budget counts both, and what calls under way may cost: what a running weir says of it stands beside.
//
// What always holds: sums are of whole millionths, and exact. Each record is read once; memory grows with the groups, which are
// bounded, not with the ledger. What a record says of its price counts, not what the configuration says now.
//
// The package does not know how a table looks.
package spend
