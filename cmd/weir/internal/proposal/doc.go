// Package proposal is a configuration that is to take the place of the one in force: what is wrong with it, what it would change, and
// putting it in force, for whoever proposes it: a command, or a request over HTTP.
//
// Nothing is changed before Put, and Put changes nothing where somebody else has changed the configuration since it was looked at.
package proposal
