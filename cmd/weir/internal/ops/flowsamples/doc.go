// Package flowsamples keeps how many jobs recently flowed in and out of APIs and their deepest buckets, so that a page
// that was just opened has a picture.
//
// A replica keeps only what it dispatches itself; the reader adds up the parts of all replicas. So a part counts the
// jobs that came and left within it, not since a start, and parts end at the same times on all replicas.
//
// # What must hold
//
//   - Memory is bounded by Options: a part takes Bytes, a line as many as fit into the span, and there are as many lines as apis and keys.
//   - A reader never waits for the sampling, and the dispatcher never waits for either.
//   - The samples are for pictures only. Nothing is decided by them, and they end with the process.
package flowsamples
