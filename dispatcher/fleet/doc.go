// Package fleet lets the replicas of weir share what they find out about an api: holds that its answers ask for, the
// breaker, the lowered rate, and which replica probes the api.
//
// The bucket weir_control has one entry for each api, hold.<api>. A replica that learns something writes the entry, and
// all replicas watch it. A write names the entry's last revision. So two replicas never overwrite each other: the later
// one reads the entry again and adds what it has found (schedule.Tell). A longer hold and a lower rate win; of the
// breaker's states the last one does.
//
// # The probe
//
// While the breaker is open, a replica that has a job for the probe claims the entry. The write names the last revision,
// so one replica gets the claim. It renews the claim while its probe is under way. If it dies, the others see no renewal
// for claimTerm by their own clocks, and another may claim. The replica whose probe failed last waits longer than the
// others before it claims again: the fault may be its own. The end of the probe turns the breaker, and that write ends
// the claim.
//
// # Clocks
//
// An entry holds durations, counted from its write. A replica adds them to the time at which it has received the entry,
// by its own clock, less the entry's age by the server's clock if the entry is not new. So a wrong clock of another
// replica has no effect, and a slow delivery makes a hold longer, never shorter. The schedule bounds every hold.
//
// # Failures
//
// A replica calls only after it has read all entries (AwaitRead). If NATS does not answer, the lease of a replica ends
// and its calls with it. A replica that cannot write keeps its own hold, and goes on trying. If it can store neither a
// turn of the breaker nor a claim for claimTerm, it probes by itself: an open breaker is always probed in the end.
//
// An operator may purge an entry or make the bucket anew, and a server may lose its newest entries. A new watch shows
// that. If there is no new watch, a write that keeps being refused makes the replica read the entry from the leader. The
// replica then stores again what it knows.
//
//	entry.go   an entry, and what it means by this process's clock
//	board.go   the entries of all apis, as they are watched
//	teller.go  one api's entry, as it is written
package fleet
