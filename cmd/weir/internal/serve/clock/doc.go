// Package clock provides the clock of slots. It starts at the wall clock's time and continues by a kernel clock that
// cannot be set and that counts the time of a suspended machine. So setting the machine's clock moves no slot.
//
// Calendars, deadlines and times that a later process reads follow the wall clock. Ahead returns how far the wall clock
// is now ahead of the clock of slots.
package clock
