// Package clock is the clock that slots are reckoned by. It begins with the wall clock of the start and goes on by the kernel's
// clock that nobody sets, which counts a suspended machine's sleep: setting the machine's clock moves no slot.
//
// Calendars, deadlines and what a later process reads go by the wall clock where that was set. Ahead says by how much.
package clock
