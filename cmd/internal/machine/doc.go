// Package machine is what a program that starts weir for a test needs of the machine it runs on: a free address, an
// environment without weir's settings, attributes that let a child die with its parent, and how long the machine lets
// programs wait.
package machine
