// Package jobstory finds out where a job is, or what became of it, from all that weir keeps: the queues, the ledger,
// the results, the dead letters and the events.
//
// An id is no address: it may exist under several apis and keys, and each of these is a job of its own. No stream has
// an index by ids. But dispatching replicas keep one in memory (jobindex): if it is whole, it names the records and the
// letters of the id, and the rest is looked for where these say that it must be: a result between its call and the
// record of that call, an event close to its letter. The owners of the queues read the headers of what waits.
//
// Without the index, or if it is not whole, the package reads the streams backwards from their ends; of results and
// letters it reads only the headers. That takes a second for 70,000 to 100,000 messages. Options.Scan bounds it, and the
// timeline says how far back it looked. If an api and a key are named, only their messages are read. If the ledger was not
// read back to the acceptance of a job found elsewhere, the records of the job's key are read from its acceptance on.
//
// The package writes nothing. A timeline does not describe one instant: a job may end while it is looked for.
package jobstory
