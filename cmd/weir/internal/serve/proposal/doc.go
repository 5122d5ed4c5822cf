// Package proposal checks a configuration that is to replace the one in force, shows what it would change, and puts it
// in force. Commands and the HTTP API use it.
//
// Apply changes nothing until its caller's function agree has agreed. If another client has changed the configuration
// since Apply compared it, Apply fails and changes nothing.
package proposal
