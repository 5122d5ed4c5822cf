// Package top shows live in a terminal what `weir status` and `weir keys` tell: apis with their rates, the deepest buckets with their
// levels and when they will be empty, dead letters, and what is paused or held.
//
// A Frame is what all replicas answered at one time, asked by the code of those two commands. A View is what its user has chosen: order,
// filter, the selected bucket, a question that waits for y or n. Both are plain values: View.Press takes a key and says what is to be
// done, View.Draw makes lines of a frame, for any size. Run is the shell around them: it owns the terminal, asks while nobody waits for
// it, and does what Press said.
//
// # What must hold
//
//   - The terminal is put back however Run ends: in order, by a signal, by an error, by a panic of any of its goroutines.
//   - A line is never wider than the terminal, nor are there more of them than it has; keys are strangers' texts and cannot write controls.
//   - A frame in which nobody answered is told, and the last good one stays.
//   - Nothing is paused or resumed without a y after the question that names it.
package top
