// Package gate asks JetStream on behalf of readers that are in an account of their own, for what names a second subject or a consumer
// of somebody else's.
//
// Such readers import what they may ask (cmd/weir/internal/embedded/accounts.go has the list of the server inside, deploy/nats that of others). The server
// gives each imported question a reply subject of its own making, so that no answer lands in the account of the streams, whatever
// subject the asker named. Three ways are left, and go through a Gate:
//
//   - Whoever makes a consumer names in its body the subject to which its messages are pushed. The gate puts it below ReplyPrefix, which
//     the readers import, and which is in no stream.
//   - Whoever deletes, changes or acknowledges to a consumer of weir's or an operator's has him miss messages. Readers make, see,
//     acknowledge to and delete what readers have made. To each other they are all the same.
//   - Consumers cost memory: their number and their questions are bounded.
//
// Pulling goes past the gate, since a client may not name the reply subject that the server made. So whoever knows the name of an
// operator's consumer can pull from it. weir's own have names that nobody can guess and that the gate does not list.
package gate
