// Package deadview has all operations on dead letters. Commands and HTTP requests read their arguments, call this
// package, and show its results. Its errors have the exit codes of commands, from which HTTP derives the status.
//
//	store.go    opens the letters; one letter; bounds a selection by what exists now
//	choice.go   selection: words in, a deadletter.Filter out
//	letter.go   a letter as JSON, with the api's answer and the job's last call
//	export.go   a letter as a line of an export, and back
//	stats.go    letters counted by their cause
//	tally.go    the same for many readers: what was read once is remembered
//	purge.go    a purge: counted, then run, with the right to end letters (right.go)
//	redrive.go  a redrive, of an edited letter too: planned, then started as a task, which a replica works
//	tasks.go    the redrives of a server
package deadview
