// Package streamwatch detects and reports that operators delete or purge streams while weir runs, and that streams lack
// copies.
//
// A Watch looks every three seconds. If a stream is missing in two looks in a row, the Watch reports the stream until
// it is back: in the log, by an event, in `weir status` and by readiness. Messages that the owner of a partition finds
// missing in its queue (dispatcher.StreamChange) are reported in the same places.
//
//	removed                           what weir does
//	WEIR_<api>_<partition>            Its owner makes it again, and writes letters of the jobs that it knows.
//	WEIR_CALLS                        Made again, beginning behind its old end. weir notices the missing records:
//	                                  keys and limits count calls that may have been made. Calls wait until records
//	                                  can be stored.
//	WEIR_RESULTS                      Made again in the same way. A job that may have had a result there is parked as
//	                                  unknown.
//	WEIR_DEAD, WEIR_EVENTS            Made again; their numbers continue.
//	KV_weir_control, KV_weir_config,  Not made again while weir runs: operators' commands are then in memory only, and an
//	KV_weir_leases                    empty bucket would say that there were none. The next start makes them.
//
// A CopyWatch looks every ten seconds for NATS servers that lack current copies of weir's streams, 64 streams at a
// look: first streams that lacked copies before, then the others in turn. A server that was restarted catches up by
// itself. A server that cannot read its Raft snapshot of a stream starts without the stream, and never gets it again.
// The log, `weir status` and a metric report both, and streams for which no leader answers. The metric counts only what
// has been missing for ten minutes.
//
// A CopyWatch knows what the leader of a stream knows: which entries a server's Raft log has.
//   - It counts the copies that a stream is configured to have. If an operator sets fewer, it does not report those
//     that are gone. The next start of weir sets WEIR_REPLICAS again.
//   - It does not report a stream for which no server answers at all, because the connection may be cut instead.
//   - It does not notice damaged blocks of messages, nor damage of the leader's own copy.
//   - A server with an emptied store soon looks current, before it has the messages: it takes over each leader's log at
//     once, and then copies the messages of 32 streams at a time. Only the server's own /healthz says when it is done,
//     so whatever weir advises waits for /healthz.
//
// Invariant: a stream that is made again never reuses the sequence of an earlier message, and never suggests that no
// call was made before.
package streamwatch
