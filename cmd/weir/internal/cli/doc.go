// Package cli has the input and output that all commands share: exit codes, tables and JSON, numbers and times as text,
// arguments, questions on a terminal, and a progress bar.
//
// Callers pass separate writers for data and for messages. Visible quotes keys, details and other texts from outside if
// they contain characters that control a terminal. Lines of a table are cut only on a terminal.
//
// The package knows nothing of servers, jobs or limits.
package cli
