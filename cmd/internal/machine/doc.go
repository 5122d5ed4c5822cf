// Package machine provides what a program that starts weir for a test needs of its machine: a free address, an
// environment without weir's settings, attributes that make a child die with its parent, how long the machine lets
// programs wait, and calendars in which no day, month or window begins while a test runs.
package machine
