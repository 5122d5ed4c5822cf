// Package deadview has all operations on dead letters. Commands and HTTP requests read their arguments, call this
// package, and show its results. Its errors have the exit codes of commands. HTTP derives the status of an answer from
// the exit code.
//
//	store.go    opens the letters; one letter; bounds a selection to the letters that exist now
//	choice.go   selection: a user's texts in, a deadletter.Filter out
//	letter.go   a letter as JSON, with the api's answer and the job's last call
//	export.go   a letter as a line of an export, and back
//	stats.go    letters counted by their cause
//	tally.go    the same for many readers: it remembers the letters that were read once
//	purge.go    a purge: counted, then run, with the right to end letters (right.go)
//	redrive.go  a redrive, also of an edited letter: planned, then started as a task, which a replica carries out
//	tasks.go    the redrives of a server
package deadview
