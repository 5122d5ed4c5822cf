// Package fleet lets the replicas of weir share what they find out about an api: holds that its answers ask for, the
// breaker, the lowered rate, and which replica probes the api.
//
// The bucket weir_control has one entry for each api, hold.<api>. A replica that learns something writes the entry, and
// all replicas watch it. A write names the entry's last revision. So two replicas never overwrite each other: the later
// one reads the entry again and adds what it has found (schedule.Tell). The longer hold, the lower rate and the last
// state of the breaker win.
//
// # The probe
//
// While the breaker is open, a replica that has a job for the probe writes its claim into the entry. The write names
// the last revision, so only one replica gets the claim. That replica renews the claim while its probe is under way. If
// it dies, another may claim as soon as its own clock shows no renewal for claimTerm. The replica whose probe failed
// last waits longer than the others before it claims again: the fault may be its own. The end of the probe closes the
// breaker or opens it again. The write that says so ends the claim.
//
// # Clocks
//
// An entry has durations, which count from its write. A replica adds them to the time on its own clock at which it
// received the entry. If the entry is not new, the replica first subtracts the entry's age by the server's clock. So a
// wrong clock of another replica has no effect, and a slow delivery makes a hold longer, never shorter. The schedule
// bounds every hold.
//
// # Failures
//
// A replica calls only after it has read all entries (AwaitRead). If NATS does not answer, the replica's lease ends,
// and the replica calls no more. A replica that cannot write keeps its own hold, and goes on trying. If for claimTerm
// it can store neither the breaker's new state nor a claim, it probes without a claim: an open breaker is always probed
// in the end.
//
// An operator may purge an entry or make the bucket anew, and a server may lose its newest entries. A new watch shows
// that. If there is no new watch, a write that keeps being refused makes the replica read the entry from the leader.
// The replica then stores again what it knows.
//
//	entry.go   an entry, and what it means by this process's clock
//	board.go   the entries of all apis, as they are watched
//	teller.go  one api's entry, as it is written
package fleet
