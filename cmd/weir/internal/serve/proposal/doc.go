// Package proposal checks a configuration that shall replace the one in force, says what it would change, and puts it
// in force. Commands and requests over HTTP use it.
//
// Nothing changes before Apply has asked agree. If another client has changed the configuration since Apply compared
// it, Apply changes nothing and fails.
package proposal
