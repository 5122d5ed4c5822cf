// Package jobindex keeps in memory which jobs have ended and what calls cost. So jobs can be listed, a job can be found
// by its id without a search of whole streams, and spending can be told without reading the ledger.
//
// The index has two shelves: one of the ledger, for jobs that are done and for every call, and one of the dead letters.
// It lives in each dispatching replica and holds what all replicas have recorded; one replica answers each question. It
// is never stored. A process builds it anew from the streams: it follows both from their ends on, and reads what lies
// before in the background, the newest first, for at most half of the time. Until both shelves are whole, an answer says
// back to when it lists.
//
// Beside the shelf of the ledger the index keeps its sums (spend.Sums), from the same reading: what was spent, and what
// was taken from limits. They go back to the ledger's beginning, also if the shelf has no room for its jobs.
//
// # Memory
//
// An entry takes 48 bytes. The entry of a listed job also has its id and its key: 90 to 100 bytes with a UUID and a key
// of ten characters, so a million jobs with one call each take about 95 MB. Options.Bytes bounds both shelves together.
// If they are full, the index forgets the oldest block of 1,024 entries, whichever shelf has it, and lists less far back.
// Options.SumBytes bounds the sums.
//
// # What must hold
//
//   - A listed dead job has its letter. Before each answer the index forgets letters that were deleted, redriven or purged.
//   - An index that may be wrong is not used: a stream that was made again, or that lost its end, empties its shelf, and
//     the shelf is built anew. Records that are missing within the ledger are counted, and the answer says so.
//   - An id that a whole index does not have was not recorded. An index that is not whole proves nothing about older jobs.
//   - Questions and building do not delay calls: the dispatcher does not know of the index.
package jobindex
