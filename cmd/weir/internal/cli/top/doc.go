// Package top shows the data of `weir status` and `weir keys` live in a terminal: APIs with their rates, the deepest
// buckets with their levels and when they will be empty, dead letters, pauses and holds.
//
// A Frame holds the answers of all replicas at one time. The code of these two commands gets the answers. A View is
// what the user has chosen: the order, the filter, the selected bucket, and a question that waits for y or n. Both are
// plain values. View.Press takes a key and returns an action; View.Draw turns a frame into lines, for any size of
// terminal. Run is the shell around them: it owns the terminal, asks for frames in the background, and carries out the
// actions.
//
// # What must hold
//
//   - The terminal is restored however Run ends: normally, by a signal, by an error, or by a panic in any of its
//     goroutines.
//   - There are never more lines than the terminal has, and no line is wider than the terminal. Keys are texts of
//     producers, and cannot send control characters to the terminal.
//   - If no replica answers, the last frame stays, with a message.
//   - Nothing is paused or resumed unless the user answers y to the question that names it.
package top
