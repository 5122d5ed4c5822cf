// Package status says how a running weir is: what every replica reports of itself, combined and judged.
//
// Rates and calls in flight are counted by each replica and added up here. Quotas and budgets, which one store counts
// for all, are taken from a replica that answered. problem.go says what a problem is: something that an operator has to
// mend. An operator's pause, an api that says "not now", and a budget that is used up are no problems: they are as
// configured, and are shown. A budget or a quota that is used up while jobs wait is a warning: weir is healthy, and the
// jobs may have to wait for days. So is a callback that is behind: no job waits for it.
//
// The package does not know how a screen looks. Its callers add what was spent today.
package status
