// Package clock provides the clock for slots. It starts with the wall clock and continues by a kernel clock that cannot
// be set and that counts the sleep of a suspended machine. So setting the machine's clock moves no slot.
//
// Calendars, deadlines and times that a later process reads follow the wall clock. Ahead says how far it was set since.
package clock
