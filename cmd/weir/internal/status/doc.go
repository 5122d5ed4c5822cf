// Package status says how a running weir is: what every replica says of itself put together, and judged.
//
// Rates and calls in flight are counted by each replica and added up here; what one store counts for all, quotas and budgets, is taken
// from whoever answered. What is a problem stands in problem.go: something that somebody has to mend. An operator's pause, an api that
// says "not now", and a budget that is spent are no problems: they are as they were asked for, and are shown. A budget or a quota that is
// used up while jobs wait is a warning: weir is healthy, and the jobs may have to wait for days.
//
// The package does not know how a screen looks, nor what was spent.
package status
