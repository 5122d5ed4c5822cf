// Package machine has what a program that starts weir for a test needs of its machine: a free address, an environment
// without weir's settings, attributes that make a child die with its parent, a measurement of how long the machine lets
// programs wait, and calendars in which no day, month or window ends while a test runs.
package machine
