// Package serving runs `weir serve` as a process of its own, for a program that shows weir or measures it: the demo and the bench.
//
// The process is this program's own binary. A Worker learns from its log where it listens, waits until it takes jobs, and can be
// killed and started again at the same addresses.
//
// # What must hold
//
//   - After Start without an error the process takes jobs at the addresses in NATS and HTTP.
//   - Whoever has called Kill or Stop finds the process gone.
package serving
