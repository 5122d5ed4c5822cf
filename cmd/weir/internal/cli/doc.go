// Package cli has the input and output that all commands share: exit codes, tables and JSON, numbers and times as text,
// arguments, questions on a terminal, and a progress bar.
//
// Callers pass separate writers for data and for messages. Keys, details and other texts from outside are quoted if
// they contain characters that control a terminal (Visible). Lines of a table are cut only on a terminal.
//
// The package knows nothing of servers, jobs or limits.
package cli
