// Package jobstory finds out where a job is, or what became of it, from all that weir keeps: the queues, the ledger,
// the results, the dead letters and the events.
//
// An id is no address: it may exist under several apis and keys, and each of these is a job of its own. No stream has
// an index by ids. But dispatching replicas keep one in memory (jobindex): if it is whole, it names the records, the
// letters and the events of the id, a record names its result, and the index counts the calls that began while the job
// waited. The owners of the queues keep a hash of the id of each job that waits. So a story takes one request for each
// thing that happened to the job, and a few more. It takes no more of them if more jobs are called, wait or have ended.
//
// If the index does not have all events, they are looked for close to the letters. If a record of an earlier version
// names no result, that is looked for between the call and the record. If the index does not go back to a wait, the
// key's records of that time are read.
//
// Without the index, or if it is not whole, the package reads the streams backwards from their ends; of results and
// letters it reads only the headers. That takes a second for 70,000 to 100,000 messages. Options.Scan bounds it, and the
// timeline says how far back it looked. If an api and a key are named, only their messages are read. If the ledger was not
// read back to the acceptance of a job found elsewhere, the records of the job's key are read from its acceptance on.
//
// The package writes nothing. A timeline does not describe one instant: a job may end while it is looked for.
package jobstory
