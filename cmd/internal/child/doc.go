// Package child keeps a process that this one has started: the demo and the torture run weir, its server and the fake API so.
//
// A Process is started without weir's settings, is known to be gone when it is, and is ended by force or in order. What it writes is
// cut into lines for whoever waits for one, and its last lines are kept for an error.
//
// The package knows nothing of weir but the prefix of its settings (machine.PlainEnv).
//
// # What must hold
//
//   - Whoever starts a process can wait for its end, and whoever has waited finds its output complete and its state known.
//   - Ending a process that has ended is no error.
package child
