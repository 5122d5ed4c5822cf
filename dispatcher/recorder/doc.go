// Package recorder is a flight recorder for Linux: a memory-mapped file in which a process notes how far each of its
// calls has come. Writing a note takes no system call. A later process on the same machine reads the file.
//
// What a process has written to a mapping survives the death of the process, but not of the machine. So a file
// counts only if its process is known to have ended and the machine has not been restarted since. Otherwise only
// the intent says something about a call.
//
// # What is noted
//
//	Prepare  the call has not begun; its intent follows
//	Adopt    the same as Prepare, for a call whose intent a former process has stored
//	Begin    the call begins now: noted before the first byte can leave
//	Left     the first bytes have left
//	Answer   the call's outcome, with the beginning of the answer's body
//	Settle   the outcome is stored elsewhere
//	LetGo    the same as Settle if the call had begun; otherwise nothing, so the entry stays while there is room
//
// The header also holds the last sequence that the ledger reported as stored (Recorded). If a process that starts finds
// that the ledger is shorter, it knows that records are gone.
//
// # What must hold
//
//   - "Has not begun" is written, never concluded from the absence of a note. Only a whole entry of that very call proves
//     it. An answer, too, counts only if its entry is whole and of that very call. Everything else is Untold.
//   - An entry belongs to one call. It names the api, the partition, the job's sequence and time, the call's number,
//     and the epoch of the partition's owner. The call's intent contains the entry's own number. So no call is mistaken
//     for another, even if a number or an entry is used again.
//   - An entry is used for another call only after it was settled, or if it says that its call has not begun and the
//     intent was taken back.
//   - One process writes a file. It locks the file before the file appears under its name. Other processes read the
//     file only if that lock is free: the kernel releases it when no thread of the process can run any more. A copy of
//     a file does not count: its inode or its time of birth is another one.
//
// # How it is written
//
// An entry's first word is a checksum over all its other words, and differs by the entry's state. A change writes the
// other words first and the first word last. If the process is killed in between, the entry says nothing. That is
// enough: a killed thread has executed all instructions up to one and none after it, and the kernel keeps a file's
// pages.
//
// An answer is written to chunks of its own. The entry names the chunks and holds the answer's checksum. If there is no
// room for an answer's body, the body is cut and marked as cut, like a result that is larger than its stream takes.
//
// The file holds answers of apis: only its owner may read it (0600). It never holds what was sent.
package recorder
