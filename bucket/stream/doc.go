// Package stream creates, writes, reads and follows JetStream streams of any kind.
//
// EnsureStream creates a stream, and only adds to an existing one, since replicas of two versions may share it. An
// Exchange sends many requests at once and reports for each message whether it is stored, refused, or in doubt. A group
// of messages that the stream accepts as a whole shares one fsync. A Writer makes such groups of single messages. An
// Exchange or Writer with a Disk, and a JetStream from OnDisk, wait until the disk has what the stream acknowledged.
//
// AskLeader and ReadUntil read all messages that the stream's leader has. They do not trust a replica's pending count,
// because a replica may lag. A JetStream from FromLeader takes a stream's information only from its leader. Follow also
// passes the messages that come later. WatchWhole shows all entries of a bucket that the bucket's leader has. A watch
// of a Renewing bucket does so too, and ends when a lost connection is back.
//
// The package knows nothing of jobs, keys, partitions or limits.
//
// # What must hold
//
//   - If an Answer has no error, the stream has acknowledged the message, and the Disk, if there is one, has it.
//   - If it is unknown whether a try stored a message, the answer is ErrUnanswered, unless a later answer shows that
//     the stream checked the message's id first. Every message carries an id, so that sending it again stores it once.
//   - A message is sent again only while its writer still has the right to write it (ErrNotNow).
package stream
