// Package top shows the data of `weir status` and `weir keys` live in a terminal: APIs with their rates, the deepest
// buckets with their levels and when they will be empty, dead letters, pauses and holds.
//
// A Frame holds the answers of all replicas at one time, from the code of those two commands. A View is the user's
// choice: order, filter, selected bucket, a question that waits for y or n. Both are plain values. View.Press takes a
// key and returns what to do; View.Draw makes lines of a frame, for any size. Run is the shell around them: it owns the
// terminal, asks for frames in the background, and does what Press returned.
//
// # What must hold
//
//   - The terminal is restored however Run ends: in order, by a signal, by an error, by a panic of any of its
//     goroutines.
//   - There are never more lines than the terminal has, and none is wider. Keys are texts of producers and cannot send
//     control characters to the terminal.
//   - If no replica answers, the last frame stays, with a message.
//   - Nothing is paused or resumed without a y after the question that names it.
package top
