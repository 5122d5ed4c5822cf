// Package cli is what the commands share towards people and scripts: exit codes, tables and JSON, numbers and times in words,
// arguments, questions on a terminal, and a progress bar.
//
// Data goes to the writer that the command was given for it, talk to the other one: the callers say which is which. What comes
// from strangers, as keys and details do, is quoted where a terminal would obey it (Visible). A line of a table is cut only
// where somebody looks at it.
//
// The package knows nothing of servers, jobs or limits.
package cli
