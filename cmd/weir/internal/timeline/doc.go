// Package timeline finds out where a job is, or what became of it, from all that weir keeps: the queues, the ledger, the results, the
// dead letters and the events.
//
// An id is no address: it may stand under several apis and keys, each of which is a job of its own. No stream has an index by ids. So the
// owners of the queues are asked, who read the headers of what waits, and the other streams are read from their ends on backwards, of
// results and letters the headers alone. That costs a second for 70,000 to 100,000 messages; Options.Scan bounds it, and how far back was
// looked is told. Where an api and a key are named only their messages are read, for which the streams do have an index. Where the
// ledger was not read far enough for a job that is known by then, its key's records are read from its acceptance on.
//
// The package writes nothing. What it tells is not of one instant: a job may end while it is looked for.
package timeline
