// Package spend adds up what was spent, from the ledger.
//
// How a call ended decides how it counts: as billed, or as in doubt if it is unknown whether the api processed it.
// ledger.Spending decides that for this package, for verify and for the metrics, so all report the same number for the
// same calls. A budget counts both, and also what calls under way may cost. The answers show the budget's own count of
// a running weir beside the sums.
//
// There are two ways to the same sums. Of reads the ledger and needs no running weir. The command uses Of, so that it
// checks what a running weir reports. Sums holds what the index of jobs has read. Pages and the status use Sums,
// because Sums need not read the ledger.
//
// Sums are whole millionths and exact. Each record is read once. Memory grows with the number of groups, which is
// bounded, and not with the ledger. The price in a record counts, and not the price in the present configuration. If an
// account counts only from a later time on than requested, it says so.
//
// The package does not know how a table looks.
package spend
