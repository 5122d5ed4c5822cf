// Package streamwatch detects and reports that operators delete or purge streams while weir runs.
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
// Invariant: a stream that is made again never reuses the sequence of an earlier message, and never suggests that no
// call was made before.
package streamwatch
