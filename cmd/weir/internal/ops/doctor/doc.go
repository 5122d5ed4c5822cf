// Package doctor looks for what will hurt: on this machine, at the NATS server, at Redis, on the way to the apis, and in the limits. Each
// finding is one line with its fix.
//
// It is to be run where weir runs, with weir's environment: what it measures of disk, clock and timers is of the machine that it runs on.
// It writes one file into the data directory, to time a sync, and removes it. No api is called: its name is looked up, a connection is
// made and, with https, a handshake; nothing is sent.
//
// The package does not know how findings are printed.
package doctor
