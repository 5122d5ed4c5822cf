// Package jsproxy asks JetStream on behalf of readers in a separate account, if a question names a second subject or a
// consumer of another user.
//
// Such readers import what they may ask: rights.go has the list, from which the embedded server's accounts and the files
// of deploy/nats are made. It has the rights of the other roles, too: a new one is a line there, and make rights. The server gives each imported question a reply subject of its own making, so that no
// answer lands in the account of the streams, whatever subject the asking client named. Three ways remain, and go
// through a Gate:
//
//   - A client that creates a consumer names in the request's body the subject to which its messages are pushed. The gate puts it below
//     ReplyPrefix, which the readers import, and which is in no stream.
//   - A client that deletes, changes or acknowledges to a consumer of weir's or of an operator's makes its owner miss messages. Readers
//     may create, see, acknowledge to and delete only consumers that readers have created. The gate does not distinguish readers.
//   - Consumers cost memory: their number and the size of their requests are bounded.
//
// Pulling does not go through the gate, because a client may not name the reply subject that the server made. So a
// client that knows the name of an operator's consumer can pull from it. weir's own consumers have names that cannot be
// guessed and that the gate does not list.
package jsproxy
