// Package retell tells the ends of jobs to producers that handed them in a second time.
//
//	duplicate with Weir-Reply-To ──▶ Teller.Tell ──▶ its end is kept? ── yes ──▶ reply
//	                                                      │ no
//	                                                      └─▶ waits ──▶ an end comes in WEIR_RESULTS or WEIR_DEAD ──▶ reply
//
// A producer that heard no receipt sends its job again under the same id, often from a new process with an inbox of its own. The owner of
// the job's partition tells the end to the subject that the first submission named, once. This package tells it to the others, from what
// is stored: it calls nothing, and tells no end that a crash could still take back.
//
// # What must hold
//
//   - An end is that of the job's present life: an id that was used again after dedupe has an older end, and a job that was refused before
//     it was taken has a letter that is no end. Ends name the place in the queue that their job had; the receipt names it too.
//   - A job registers before its end is looked for, and the streams are followed from before the oldest registration. So no end falls
//     between the look and the following.
//   - Everything has a bound: what waits for a look, what waits for an end (the oldest is dropped), looks at once, messages per look. The
//     streams are followed only while something waits.
//
// A restart forgets what waits. The end still stands in its stream.
package retell
