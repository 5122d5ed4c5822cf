// Package backlog holds the waiting jobs of a key, in the order in which they are called.
//
// A Backlog has a List for each priority. A List keeps only stream sequences (list.go), and the due times of jobs that
// must not be called yet (early.go). Tags order the jobs of several priorities by the priorities' weights (tags.go).
// No job of a priority overtakes another one: a job leaves at its turn, or it is extracted. The package knows nothing
// of calls, slots or keys, and never blocks.
package backlog
