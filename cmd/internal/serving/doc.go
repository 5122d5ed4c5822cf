// Package serving runs `weir serve` as a process of its own, for programs that show or measure weir: the demo, the
// bench and weir-peers.
//
// By default the process runs this program's own binary. A Worker reads from the log on which addresses weir listens,
// waits until weir accepts jobs, and can be killed and started again at the same addresses.
//
// # What must hold
//
//   - After Start without an error, the process accepts jobs at the addresses in NATS and HTTP.
//   - After Kill or Stop, the process is gone.
package serving
