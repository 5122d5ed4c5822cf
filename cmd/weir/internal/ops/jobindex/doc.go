// Package jobindex keeps in memory which jobs have ended and what calls cost. So jobs can be listed, a job can be found
// by its id without a search of whole streams, and spending can be told without reading the ledger.
//
// The index has three shelves: one of the ledger, for jobs that are done and for every call, one of the dead letters,
// and one of the events about jobs, which are found by their ids and not listed. It lives in each dispatching replica
// and holds what all replicas have recorded. One replica answers each question. The index is never stored. A process
// builds it anew from the streams: it follows each from its end on, and reads what lies before in the background, the
// newest first, for at most half of the time. Until its shelves are whole, an answer says back to when it lists.
//
// Beside the shelf of the ledger the index keeps its sums (spend.Sums), from the same reading: what was spent, and what
// was taken from limits. They go back to the ledger's beginning, also if the shelf has no room for its jobs.
//
// # Memory
//
// An entry takes 58 bytes. The entry of a listed job also has its id and its key: 100 to 110 bytes with a UUID and a
// key of ten characters, so a million jobs with one call each take about 105 MB. Options.Bytes bounds the shelves
// together. If they are full, the index forgets the oldest block of 1,024 entries, whichever shelf has it, and lists
// less far back. Options.SumBytes bounds the sums.
//
// # Questions
//
// Each block has a filter of the hashes of its ids and its keys, which takes 2 of the 58 bytes. To find the traces of
// an id, the index looks at each filter, at the entries of the blocks that have the id, and at those of about one of
// thirty other blocks. To count the calls of a key that began during a wait, it looks at the entries of that time, in
// blocks that have the key. A call that did not end its job is counted by 32 bits of its key's hash.
//
// # What must hold
//
//   - A listed dead job has its letter. Before each answer the index forgets letters that were deleted, redriven or purged.
//   - An index that may be wrong is not used: a stream that was made again, or that lost its end, empties its shelf, and
//     the shelf is built anew. Records that are missing within the ledger are counted, and the answer says so.
//   - An id that a whole index does not have was not recorded. An index that is not whole proves nothing about older jobs.
//   - Questions and building do not delay calls: the dispatcher does not know of the index.
package jobindex
