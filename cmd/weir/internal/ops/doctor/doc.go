// Package doctor looks for coming trouble: on this machine, at the NATS server, at Redis, on the way to the APIs, and
// in the limits. Each finding is one line with its fix.
//
// It must run where weir runs, with weir's environment, because it measures the disk, clock and timers of its own
// machine. To time a sync it writes one file into the data directory, and removes the file. It calls no API: it
// resolves the name, connects and, with https, does a handshake, but sends no request.
//
// The package does not know how findings are printed.
package doctor
