// Package letters selects and describes dead letters, in the same way for commands and for requests over HTTP.
//
//	choice.go  selection: words in, a deadletter.Filter out
//	letter.go  a letter as JSON, with the api's answer and the job's last call
//	stats.go   letters counted by their cause
//	tally.go   the same for many readers: what was read once is remembered
//
// It reads letters by deadletter.Browser and changes nothing.
package letters
