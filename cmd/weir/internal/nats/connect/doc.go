// Package connect reaches the NATS server that weir works with. It covers how commands and the worker connect, why they
// cannot, what the server refuses to this user, and whether weir can work with the server at all.
//
// An error of this package names the server without credentials and says what to do. NATS does not answer a forbidden
// request: Denials records every refusal, so that no code waits for an answer that cannot come.
//
// Check verifies everything that a worker needs before it accepts the first job: version, JetStream, room for its
// streams, the length of messages, and rights. A deficiency is thus found at the start instead of after a call that was
// paid for.
//
// The package knows the names of the streams that all weirs on a server share. It does not know what is in them.
package connect
