// Package jobindex keeps in memory which jobs have ended and what calls cost. With the index weir can list jobs, find a
// job by its id without searching whole streams, and report spending without reading the ledger.
//
// The index has three shelves. The shelf of the ledger is for jobs that are done and for every call. The second shelf
// is for the dead letters. The third is for events about jobs; weir finds these by id and does not list them. Each
// dispatching replica has an index, and each index has the records of all replicas. One replica answers each question.
// The index is never stored. A process builds it anew from the streams: it follows each stream from its end. In the
// background it also reads the older messages, newest first, for at most half of the time. Until a shelf is whole, an
// answer says how far back it lists.
//
// Besides the shelf of the ledger the index keeps sums (spend.Sums) from the same records: what was spent, and what
// calls took from limits. The sums go back to the ledger's beginning, even if the shelf has no room for all its jobs.
//
// # Memory
//
// An entry takes 58 bytes. The entry of a listed job also has its id and its key. With a UUID and a key of ten
// characters it takes 100 to 110 bytes, so a million jobs with one call each take about 105 MB. Options.Bytes bounds
// all shelves together. If they are full, the index drops the block of 1,024 entries that is the oldest of all shelves,
// and then lists less far back. Options.SumBytes bounds the sums.
//
// # Questions
//
// Each block has a filter of the hashes of its ids and its keys, which takes 2 of the 58 bytes. To find the traces of
// an id, the index reads every filter. Then it reads the entries of the blocks that have the id, and of about one in
// thirty other blocks. To count the calls of a key that began during a wait, it reads the entries of that time, in
// blocks that have the key. For a call that did not end its job, it compares only 32 bits of the key's hash.
//
// # What must hold
//
//   - A listed dead job has its letter. Before each answer the index drops letters that were deleted, redriven or purged.
//   - The index does not use a shelf that may be wrong. If a stream was made again or lost its end, the index empties
//     the shelf and builds it anew. If records are missing within the ledger, the index counts them, and the answer says
//     so.
//   - If a whole index does not have an id, that id was not recorded. An index that is not whole proves nothing about
//     older jobs.
//   - Questions and building do not delay calls: the dispatcher does not know the index.
package jobindex
