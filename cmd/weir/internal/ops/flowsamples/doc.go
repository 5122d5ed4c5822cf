// Package flowsamples keeps what flowed in and out of apis and of their deepest buckets in the last while, for whoever looks now: a page that
// has just been opened has a picture.
//
// A replica keeps what it dispatches itself; who draws a picture adds the replicas' parts up. That is why a part says what came and left
// within it, and not since when: of replicas that began at different times only that can be added, and why parts end at the same times
// everywhere.
//
// # What must hold
//
//   - Memory is bounded by Options: a part takes Bytes, a line as many as fit into the span, and there are as many lines as apis and keys.
//   - Whoever reads never waits for who samples, nor the dispatcher for either.
//   - It is for pictures. Nothing is decided by it, and it is gone with the process.
package flowsamples
