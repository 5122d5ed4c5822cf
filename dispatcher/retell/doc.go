// Package retell reports the ends of jobs to producers that submitted them a second time.
//
//	duplicate with Weir-Reply-To ──▶ Teller.Tell ──▶ its end is kept? ── yes ──▶ reply
//	                                                      │ no
//	                                                      └─▶ waits ──▶ an end comes in WEIR_RESULTS or WEIR_DEAD ──▶ reply
//
// A producer that got no receipt sends its job again under the same id, often from a new process with an inbox of its
// own. The owner of the job's partition reports the end once, to the reply subject of the first submission. This
// package reports the end to the reply subjects of the other submissions, from what is stored. It calls no api, and
// reports no end that a crash could still undo.
//
// # What must hold
//
//   - An end must be that of the job's present life. If an id was used again after dedupe, there is an older end. If a
//     job was refused before it was accepted, its letter is no end. Ends name the place in the queue that their job
//     had; the receipt names it too.
//   - A job registers before its end is looked for, and the streams are followed from a time before the oldest
//     registration. So no end is missed between the look and the following.
//   - Everything has a bound: duplicates that wait for a look, duplicates that wait for an end (the oldest is
//     dropped), looks at the same time, and messages per look. The streams are followed only while a duplicate waits.
//
// The duplicates that wait for an end are noted (note.go), so a restart does not forget them.
package retell
