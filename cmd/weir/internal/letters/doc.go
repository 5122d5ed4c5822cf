// Package letters is how dead letters are chosen and told, the same to whoever asks: a command, or a request over HTTP.
//
//	choice.go  which letters are meant: words in, a deadletter.Filter out
//	letter.go  a letter as JSON, with the api's answer and the job's last call
//	stats.go   letters counted by their cause
//	tally.go   the same for many who ask: what was read once is kept in mind
//
// It reads letters by deadletter.Browser and changes nothing.
package letters
