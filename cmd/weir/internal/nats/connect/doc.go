// Package connect connects commands and the worker to the NATS server. It explains why a connection fails, records what
// the server refuses to this user, and checks whether weir can work with the server.
//
// An error of this package names the server without credentials and says what to do. NATS does not answer a forbidden
// request: Denials records every refusal, so that no code waits for an answer that cannot come.
//
// Check verifies everything that a worker needs before it accepts the first job: the server's version, JetStream, room
// for streams, the length of messages, and rights. So weir finds a deficiency at the start, and not after a call that
// was paid for.
//
// The package knows the names of the streams that all weirs on a server share. It does not know their content.
package connect
