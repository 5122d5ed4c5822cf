// Package machine is what a program that starts weir for a test needs of the machine it runs on: a free address, an
// environment without weir's settings, attributes that let a child die with its parent, how long the machine lets
// programs wait, and calendars that begin no day, month or window while a test runs.
package machine
