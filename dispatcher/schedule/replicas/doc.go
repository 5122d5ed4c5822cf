// Package replicas holds the simulations of schedules that share a store: the replicas of an api, and the apis of an
// account. Each process has a schedule and a clock of its own, and messages between them take time. The package has
// only tests, and sees of a schedule what the dispatcher sees.
package replicas
