// Package jsproxy sends some requests of readers in a separate account to JetStream: requests that name a second
// subject, or a consumer of another user.
//
// Readers import the subjects of their requests. rights.go has the list, from which the accounts of the embedded server
// and the files of deploy/nats are made. It also has the rights of the other roles: add a new right there, and run make
// rights. The server gives each imported request a reply subject that the server makes. So no answer arrives in the
// account of the streams, whatever subject the client named. Three cases remain, for which requests go through a Gate:
//
//   - A client that creates a consumer names in the body of the request the subject to which messages are pushed. The
//     gate puts that subject below ReplyPrefix, which the readers import and no stream takes.
//   - A client that deletes, changes or acknowledges to a consumer of weir or of an operator would make the owner miss
//     messages. Readers may create, see, acknowledge to and delete only consumers that readers have created. The gate
//     does not tell readers apart.
//   - Consumers take memory, so the gate bounds their number and the size of the requests for them.
//
// Pulling does not go through the gate, because a client may not name the reply subject that the server made. So a
// client that knows the name of an operator's consumer can pull from it. weir's own consumers have names that cannot be
// guessed, and the gate does not list them.
package jsproxy
