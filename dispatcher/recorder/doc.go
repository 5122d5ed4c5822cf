// Package recorder is a flight recorder: a file, mapped into memory, in which a process notes of each of its calls how far it has come,
// without a system call, so that whoever comes after it on the same machine knows.
//
// What a process has written to a mapping survives its death, not that of the machine. So a file counts where its process is known to
// have ended, and for as long as the machine has not been started again; anywhere else what is known of a call is its intent.
//
// # What is noted
//
//	Prepare  the call has an intent, and has not begun
//	Adopt    the same, of a call that a process before intended
//	Begin    it begins now: noted before the first byte can leave
//	Left     the first bytes have left
//	Answer   what the call came to, with the beginning of the answer's body
//	Settle   what it came to is stored elsewhere
//	LetGo    the same, or its intent was taken back before it began
//
// Beside the calls the header has the last sequence that the ledger said it stored (Recorded): a start that finds the ledger shorter knows
// that records are gone.
//
// # What must hold
//
//   - That a call has not begun is written, never concluded from an absence. Nothing but an entry that says so, whole and of that very
//     call, is believed; so it is with an answer. Everything else is Untold.
//   - An entry is of one call: of api, partition, sequence and time of its job, of the call's number, and of the epoch of its
//     partition's owner. Its own number stands in the call's intent. So no call is taken for another, whatever was used again.
//   - An entry is used for another call only after it was settled, or while it says that its call has not begun and nobody needs to
//     know: the intent was taken back.
//   - A file is written by one process, which locks it before it can be seen under its name, and read by others only where that lock is
//     free: the kernel takes it away when no thread of the process can run any more. A copy of a file is no such file, and says so by
//     its inode.
//
// # How it is written
//
// An entry's first word is a sum over all others, which differs by what the entry says. A change writes the other words first and the
// first word last, and a process that is killed in between leaves an entry that says nothing. That is enough: the instructions of a
// thread that is killed have happened up to one of them and not beyond, and pages of a file are the kernel's.
//
// An answer is written to chunks of its own, with a sum, and the entry names them. Where there is no room for an answer's body it is cut
// and says so, as a result is that is larger than its stream takes.
//
// The file holds answers of apis: only its owner may read it (0600). It never holds what was sent.
package recorder
