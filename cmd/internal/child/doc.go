// Package child runs processes for this one: the demo and the torture use it to run weir, its server and the fake API.
//
// A Process starts without weir's settings. Its end can be waited for, and it is ended by force or in order. Its output
// is cut into lines, which Options.Line receives, and its last lines are kept for error messages.
//
// The package knows nothing of weir except the prefix of its settings (machine.PlainEnv).
//
// # What must hold
//
//   - The end of every started process can be waited for. After that wait its output is complete and its state is known.
//   - Ending a process that has ended is no error.
package child
