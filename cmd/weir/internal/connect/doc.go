// Package connect reaches the NATS server that weir works with: how commands and the worker connect, what is wrong where they
// cannot, what the server refuses to this user, and whether it is one that weir can work with at all.
//
// An error of this package names the server without credentials and says what to do. NATS answers what a user may not do with
// nothing at all: Denials notes every refusal, so that nobody waits for an answer that cannot come.
//
// Check asks for everything that a worker needs before it takes the first job: version, JetStream, room for its streams, the
// length of messages, and rights. What is missing then is found at the start instead of after a call that was paid for.
//
// The package knows the names of the streams that all weirs on a server share. It does not know what is in them.
package connect
