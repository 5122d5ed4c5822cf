// Package dispatcher owns partitions of each api's queue, starts their calls when the schedule says so, and brings
// every job to exactly one end.
//
//	schedule   decides which call may start when
//	httpcall   makes one call and judges its answer
//	ledger     reads the records of calls
//	recorder   notes how far each call has come, in a file that outlives the process
//	recovery   decides what becomes of a job that a new owner finds
//	reuse      compares requests, and remembers which answers may be given again
//	ownership  decides which replica owns which partition
//	fleet      shares what the replicas find out about an api
//	sites      moves shares of an account between sites
//	retell     reports ends to producers that submitted a job twice
//	trace      writes the spans of jobs
//
// # The way of a job
//
// caller.work in job.go shows it. An apiWorker works the partitions of one api. It is a thin shell around a schedule,
// which decides which call may start when. When a job is near its call, it gets a goroutine of its own. This goroutine
//
//  1. prepares the job: it loads the message, opens a connection to the api and stores the intent, which says that a
//     call may follow;
//  2. waits for the job's slot, which the schedule asks for only now;
//  3. makes the call, never before the slot and at most four fifths of the api's jitter after it. Only sending is left
//     to do in the slot. A call that misses its slot is not made: the slot is given back, or stays used, and the job
//     waits for another one;
//  4. settles the job: it stores the call's outcome, and then deletes the job's message or lets the job wait for its
//     next call.
//
// If an api takes several jobs in one call, one job leads the others through steps 1 to 3 (packing.go). Each has its
// own intent, and is settled by itself.
//
// Step 4 stores the following, depending on the outcome. Each write starts only when the one before it is durable:
//
//	the call succeeded           result, reply to the producer, the ledger's record, deletion of the message
//	the call ended the job       the ledger's record, letter, deletion; before the letter also the mark of the job's
//	                               end, if the ledger had a record of the call already
//	another call is to follow    the ledger's record, retry mark; the message stays
//	the api goes on working      the ledger's record, the mark of its operation; the message stays until that has
//	                               ended (settle/operation.go)
//	the job ends without a call  the mark of its end, letter, deletion
//	it gets an equal job's       the mark of its end, result, reply to the producer, the ledger's record, deletion
//	  answer
//
// So a success in the ledger proves that the result is stored, and that the owner tried to send the reply. A missing
// letter can be written again from the record or the mark. After a crash between two writes, recovery repeats the
// missing ones. Message ids keep streams from storing a write twice.
//
// The lane's lock guards its schedule, its partitions, and the part of a job by which the schedule decides
// (schedule.Job). The worker never waits for anything while it holds the lock. lane.Job says which of its other fields
// the lock guards, and which belong to the job's goroutine (lane/job.go).
//
// httpcall.Judge decides whether a call's outcome is done, submitted, retry, pushback, denied or dead.
// Schedule.OnCallEnd then decides what this outcome means for later calls. A time in a header is compared with the
// answer's Date. The size of a number in a header decides its meaning: seconds to wait, or an epoch in s, ms, µs or ns.
// A hold that no job's retry mark records has a mark of its own in the partition (lane/mark.go).
//
// If the store of slots is on another machine, the worker asks it in the background, one round at a time, while calls
// start. It repeats the ends of grants until the store has acknowledged them, or the worker stops: then the leases of
// the grants end them (grantends.go).
//
// # Where a thing happens
//
// The packages below this one share the state of an api's worker, its lane:
//
//	lane       what the parts of an api's worker share: the schedule under its lock, partitions, jobs near their call
//	settle     brings jobs to their ends: stores outcomes, results, records, marks and letters
//	takeover   reads the stream of a partition taken over, and resumes the jobs that it finds there
//	polling    polls the operations of calls that the api has accepted, and ends their jobs
//	inquiry    asks an api what became of a call, and ends letters by the answer
//	desk       answers requests of operators: inspect, cancel, pause
//
// The files here run the workers:
//
//	the dispatcher           dispatcher.go, host.go, contact.go, tailload.go, recorders.go, gauges.go
//	the worker of an api     apiworker.go, terms.go
//	  its calls              job.go, call.go, comparison.go, preparation.go, packing.go, settlement.go, shortfall.go
//	  its answers            answers.go, left.go
//	  its slots              limiter.go, grantends.go
//	  its partitions         takeover.go
//
// # Ownership
//
// A worker works only those partitions of its api that this replica owns. If several replicas share them
// (Options.Registry), the package ownership decides which replica takes which. Its doc.go shows why no two replicas
// start calls of one partition at the same time. An ownership.Manager drives a Dispatcher through host.go.
//
// A lane.Owned is one tenure: a replica that takes the same partition over again makes a new value. Partitions
// are opened and closed while the worker runs (takeover.go). Closing a partition lets its calls end and stores their
// outcomes, so that the next owner finds no call with an unknown outcome. If the replica loses the partition instead,
// it stores nothing more about it.
//
// While the right to a partition is in doubt, outcomes of its calls wait. When the right is lost, they are dropped,
// because the next owner finds the intent and decides about the job without them. The right is checked before each
// write and again before a write is repeated. A write that was sent in time, over a connection that then stalled, may
// still arrive. Before recovery writes a letter about a lost call, it bars such a result (settle/resultbar.go). If
// recovery repeats the call, a late result of the first call is stored.
//
// Calls of a lost partition run to their end. The next owner counts them as calls in flight
// (takeover/orphanedcalls.go), unless their process is known to have ended: then the kernel has closed its connections,
// which ends a call as a timeout does. A restart of a single weir relies on that.
//
// # Recovery
//
// A new owner reads the end of the ledger and the partition's stream. It reads the stream's markers (intents, retry
// marks, marks of ends, of operations and of holds) before the jobs, although they were stored later. The markers and
// the ledger name, for each key, the last job with a history. Calls of a key start as soon as its jobs up to that one
// have been read, while the rest of a long queue is still being read. If the history of a job may hold every key, no
// call starts before that job has been read (takeover/replay.go).
//
// Every call has an intent, which is deleted only after the call's outcome is stored. So a job with neither an intent
// nor an outcome was never called. A found job has no call (Waits), a call without an outcome (Lost, Answered), an
// outcome after which it goes on (Waits, Polls), or an end (HasResult, EndsByLast, EndsByMark, Forgoes). recovery.Judge
// gives it one of these eight fates, and takeover/found.go carries it out:
//
//	Waits       never called, its intended call had not begun, or another call follows its last one: it is called in
//	            its turn
//	HasResult   its result is stored and no record says so: the record is written, unless every call has one, and the
//	            job ends as done
//	EndsByLast  the ledger has its final record: its letter is written again if it has one, and the job ends
//	EndsByMark  a mark says that it ends without another call: its letter is written again, and the job ends
//	Answered    no outcome is stored, but its process has ended and noted the answer: recovery stores what that process
//	            would have stored
//	Forgoes     an owner was ending it with an equal job's answer: recovery bars the result. If the result was stored
//	            already, the job ends with it. Otherwise the job waits
//	Lost        a call may have been made, and nothing says what came of it
//	Polls       the api has accepted its last call: it is polled, and never called again
//
// A lost call gets a record, which says that the call may have been made, before the job goes on or gets its letter
// (takeover/lostcall.go). If the call carried an idempotency key, the api takes keys as it did then, and surely still
// knows this one, the job is called again with the same key. Otherwise its result is barred. If the result is stored
// already, the job ends with it. If not, it becomes a letter: exhausted if schedule.MostDeaths calls with a key were
// lost in a row, and unknown in every other case.
//
// A key continues at the pace that the ledger recorded. After a lost call, or a call with a result and no record, the
// key first waits as if its whole burst were used, unless the process that made the call noted the pace.
//
// The table below shows the same by the contents of the stream, the ledger and the results. recovery/cases_test.go
// names the cases of recovery.Judge, and checks that everything that can be found belongs to exactly one of them.
// takeover/recoverysimulation_test.go simulates, in virtual time, owners that die, lose power or lose the partition
// between any two writes. It runs Judge, Mend and the reading of histories, and copies the order of the writes.
//
//	found in the stream     and                                            becomes
//	a job                   nothing else                                   waiting, in its place
//	a job                   a final record in the ledger, and no result    finished: its letter, if it has one, is
//	                                                                         written again, then the job is deleted
//	a job                   a result, and no record that says done         finished: its record is written, unless
//	                                                                         every call has one, then the job is
//	                                                                         deleted
//	a job                   another job with its id, which has ended       deleted; if dedupe was changed meanwhile, a
//	                                                                         letter unknown (takeover/duplicate.go)
//	a job, a retry mark     nothing else                                   waiting for its time, with its attempts
//	a job, the mark of an   nothing else, or the intent that its end may   polled by what the mark says
//	  operation               be stored (settle/operation.go)
//	                        a result, or a final record                    finished, as above; if there is an intent,
//	                                                                         an end older than what was read is
//	                                                                         looked up
//	                        the intent of a later call                     as with an intent alone
//	a job, a record that    nothing else                                   polled, when its mark is stored
//	  says submitted
//	a job, the mark of its  nothing else                                   the letter that was being written: expired,
//	  end                                                                    invalid, cancelled, over budget
//	                        an intent behind the mark, or of a later       as with an intent alone: the mark was late.
//	                          owner                                          If its process noted that the call had
//	                                                                         not begun, the mark holds
//	a job, the mark of its  the result, and no record                      finished: its record, which costs nothing, is
//	  end with an equal                                                      written, then the job is deleted
//	  job's answer          no result                                      waiting: the result, which may be on its way,
//	                                                                         is barred
//	                        an intent behind the mark, or of a later       as with an intent alone
//	                          owner
//	a job, an intent        a result, and no record that says done         finished, as above
//	                        no outcome; its process has ended, and noted   waiting, as if there were no intent
//	                          that the call had not begun
//	                        no outcome; its process has ended, and noted   what that process would have stored: a
//	                          what the call came to                          result and a record; or a record and a
//	                                                                         retry mark, the mark of an operation, or
//	                                                                         a letter
//	                        no outcome; its call carried no idempotency    a record, and a letter unknown
//	                          key
//	                        no outcome; the api takes keys as it did then  a record, and called again with the same
//	                                                                         key; after schedule.MostDeaths lost calls
//	                                                                         in a row a letter exhausted
//	                        no outcome; the api takes other keys now, or   a record, and a letter unknown; after
//	                          none, or may have forgotten the key            schedule.MostDeaths a letter exhausted
//
//	a job of a backup that  no end; the api takes no keys, or takes packs  a letter unknown
//	  was put back          no end; the api takes keys and no packs        waiting; it may have been called
//	                                                                         (lane/restored.go)
//
// A process notes the state of its calls in the flight recorder (dispatcher/recorder). lane/flight.go writes these
// notes and reads those of ended processes. Recovery reads them first if a call has no outcome. The pace of the calls'
// keys follows the notes, too.
//
// A message that the stream counts but does not return is lost. takeover/damage.go reports it: as a letter unknown if
// it was a job, otherwise in the log and in a counter. A job whose message is found missing later becomes a letter
// unknown, too (settle/missing.go). So does a waiting job whose message was deleted from the stream by hand
// (takeover/removal.go). Running calls then continue, their outcomes are stored, and the units that limits have used
// stay counted.
//
// # Changes of configuration
//
// An api's configuration and its connections are its terms (terms.go). The worker's loop replaces them as a whole,
// while no round of asks is under way, so that costs and limits never belong to different terms. Waiting jobs get the
// new rules at once, and so do jobs that are ready. Granted slots and running calls keep the old ones.
//
// A call is judged by the terms under which it was made, even if the terms change while it runs, at the next start or
// with the next owner. An intent therefore stores these terms of its call:
//
//	idempotency   the identity of its key (httpcall/identity.go): header, form, place, and when the call began. Retry
//	              marks, records and letters store it, too. If a call of a job may have been processed, the job is called
//	              again only under the same header, form and place.
//	timeout       how long calls of a lost owner may run (takeover/orphanedcalls.go)
//	price         what a lost call cost, for the ledger
//
// Records and marks store the outcome, charges, attempts and times. If retry.on, reject, results.max_body or the limit
// of attempts change, stored outcomes are not judged again. Everything else follows the present terms:
//
//	rate, burst, overrides, jitter, headroom   after a lost call was found, its key waits until a full bucket of the
//	              present rate has drained, so that no window holds more calls than the present rate allows. A rate that
//	              was lowered while weir was stopped counts from when it is in force
//	in_flight     lost calls that may still run are counted one by one, against the present number
//	limits of all keys, budgets   their store counts them before each call. A new one counts from when it is in force.
//	              The ledger charges a lost call the units that its job takes from the present limits
//	retry.hold    a former pushback may now hold the key instead of the api, or the reverse. The api then pushes back
//	              once more, which charges nothing
//	retry.attempts, min, max, breaker   decide only when a job is called again, if it may be
//	idempotency.for   counts from the first call that may have been processed, whatever was configured then. It is asked
//	              when a job is made ready, when its slot comes, and when a letter is redriven
//	headers       credentials may change at any time and are no part of a key's identity. Drain the api before you move
//	              to another account of it
//	operation   polls follow the present terms; if these have none, the job waits until the time stored with it
//	methods, forward_headers   a waiting job that they now forbid becomes a letter invalid when it is made ready
//	max_body      is checked only at intake: waiting jobs are called. results.max_body applies from the next answer on
//	reuse         an answer is given again only while the terms compare requests and call the api as they did at its call
//	dedupe        see takeover/duplicate.go: a copy in doubt becomes a letter, also on an idempotent api
//
// # What must hold
//
//	I1  no HTTP call without a grant, and none outside its slot
//	I2  calls of a key start in the order its jobs were accepted, retries excepted
//	I3  a job is deleted only after its result or its letter, and its record, are durable
//	I4  waiting, holds and pushback never use up an attempt, nor do tries of an open breaker that send nothing
//	I5  calls, staged jobs, cached messages and finished jobs not yet deleted are bounded
//	I6  while no slots are available, calls hold and the intake continues
//	I7  Run returns only when every goroutine it started has returned
//	I8  a job ends with another one's answer only if it was never called, in its turn, and that answer was judged done
//
// Calls use HTTP/1.1 only, one at a time on a connection. It is then certain what was sent. httpcall/call.go and
// httpcall/connections.go keep net/http from sending a request again by itself.
package dispatcher
