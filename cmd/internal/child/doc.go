// Package child runs child processes. The demo and the torture run weir, its server and the fake API with it.
//
// A Process starts without weir's settings. It can be waited for, stopped in order, or killed. Options.Line receives
// each line of its output, and the last lines are kept for error messages.
//
// The package knows nothing of weir except the prefix of its settings (machine.PlainEnv).
//
// # What must hold
//
//   - Every started process can be waited for. After that its output is complete and its state is known.
//   - Stopping or killing a process that has ended is no error.
package child
