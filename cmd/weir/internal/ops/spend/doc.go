// Package spend adds up what was spent, from the ledger.
//
// A call counts by how it ended: what was billed and, apart from it, what is in doubt, because it is unknown whether
// the api processed the call. ledger.Spending decides that for this package, for verify and for the metrics, so that
// all report the same number for the same calls. A budget counts both, and what calls under way may cost: what a
// running weir reports of it is shown beside the sums.
//
// There are two ways to the same sums. Of reads the ledger, and needs no running weir: the command uses it, so that it
// checks what a weir says. Sums holds what the index of jobs has read, and answers pages and the status without
// reading.
//
// What always holds: sums are of whole millionths, and exact. Each record is read once; memory grows with the groups,
// which are bounded, not with the ledger. The price in a record counts, not the present configuration's. An account
// says from when on it counts if that is later than asked.
//
// The package does not know how a table looks.
package spend
