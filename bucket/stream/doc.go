// Package stream holds what weir does with any JetStream stream: make it exist, write to it, read it up to a place, follow it.
//
// EnsureStream makes a stream exist and only ever adds to one that is there, since replicas of two versions may share it.
// An Exchange sends many requests at once and tells of each message whether it is stored, refused, or that nobody knows; a
// group that the stream takes whole shares one fsync. A Writer does so for whoever writes one message at a time. With a Disk they, and
// what OnDisk makes, wait until the disk has what the stream acknowledged. AskLeader
// and ReadUntil read what the stream's leader has: a replica may lag, and what it says is left to read is not believed. Follow
// gives what comes as well. A watch of a Renewing bucket ends when the connection was lost and is back.
//
// The package knows nothing of jobs, keys, partitions or limits.
//
// # What must hold
//
//   - An Answer without an error is a message that the stream has acknowledged, and that the Disk has, where there is one.
//   - After a try of which nobody knows what became of it, the answer is ErrUnanswered, unless the stream looked for the
//     message's id first: every message carries one, so that sending it again stores it once.
//   - A message is sent again only while its writer still has the right to (ErrNotNow).
package stream
