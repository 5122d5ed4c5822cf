// Package flowsamples samples how many jobs flow into and out of APIs and their deepest buckets. So a page that was
// just opened can show the recent past.
//
// A replica samples only what it dispatches. The reader adds up the parts of all replicas. For that, a part counts the
// jobs within its time and not since a start, and parts end at the same times on all replicas.
//
// # What must hold
//
//   - Memory is bounded by Options: a part takes Bytes, a line has as many parts as fit into Span, and there is one line
//     for each API and for each sampled key.
//   - A reader never waits for the sampling, and the dispatcher waits for neither.
//   - The samples are only for pictures. weir decides nothing by them, and they end with the process.
package flowsamples
