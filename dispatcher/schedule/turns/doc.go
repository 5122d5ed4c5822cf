// Package turns says which queue is next at what keys share: the shared limits, and room to make jobs ready.
//
// Turns has an order for each priority (order.go). An order has two lines of queues that wait for a shared limit
// (line.go), and one of queues that wait for room (room.go). In each line the priorities take turns by weight, then the
// tenants of a priority, then the queues of a tenant. A line for a limit is a fair queue over service times; the line
// for room is a round robin. turns.go has the proof of how long a job waits. A queue has its Seats, which only this
// package changes. Beyond that, the package must know how many of a queue's jobs are on their way to a slot.
package turns
