// Package jobstory finds out where a job is and what happened to it. It reads everything that weir stores: the queues,
// the ledger, the results, the dead letters and the events.
//
// An id may exist under several apis and keys. Each pair of an api and a key is then a job of its own. No stream has an
// index by ids, but dispatching replicas keep one in memory (jobindex). If that index is whole, it names the id's
// records, letters and events. A record names its result. The index also counts the calls that began while the job
// waited. The owners of the queues keep a hash of the id of each waiting job. So a story takes one request for each
// thing that happened to the job, and a few more. The number of requests does not grow with the number of other jobs.
//
// If the index does not have all events, the package searches for events around the time of the letters. The
// record of an inquiry names no result, because it is stored before the result: the package then searches the results
// around that time. If the index does not go back to a wait, the package reads the key's records of that time.
//
// Without a whole index the package reads the streams backwards from their ends; of results and letters it reads only
// the headers. That takes a second for 70,000 to 100,000 messages. Options.Scan bounds it, and the timeline says how
// far back it went. If an api and a key are given, the package reads only their messages. If a job is found elsewhere
// and the ledger was not read back to its acceptance, the package reads the records of the job's key from the
// acceptance on.
//
// The package writes nothing. A timeline does not show a single instant: a job may end during the search.
package jobstory
