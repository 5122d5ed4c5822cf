// Package status reports how a running weir is: it combines and judges what all replicas report about themselves.
//
// Each replica counts its own rates and calls in flight, and this package adds them up. One store counts quotas and
// budgets for all replicas, so this package takes them from any replica that answered. A problem (problem.go) is
// something that an operator must mend. An operator's pause, an api that says "not now" and a budget that is used up
// are no problems: the configuration provides for them, and the status shows them. A budget or a quota that is used up
// while jobs wait is a warning: weir is healthy, but the jobs may wait for days. A callback that is behind is also a
// warning, because no job waits for it. A NATS server that lacks current copies of streams is a warning, and a problem
// if it does not catch up within ten minutes. A stream for which no leader answers is a problem at once.
//
// The package does not know how a screen looks. Its callers add what was spent today.
package status
