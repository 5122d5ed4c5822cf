// Package streamwatch notices streams that are deleted or purged by hand while weir runs, and tells operators.
//
// A Watch looks every few seconds. A stream that is not there twice is told by name: in the log, by an event, in `weir status` and by
// readiness, until it is back. What the owner of a partition finds missing in a queue (dispatcher.StreamChange) is told in the same places.
//
//	removed                           what is done
//	WEIR_<api>_<partition>            its owner makes it again, and letters of the jobs that it knows
//	WEIR_CALLS                        made again, to begin later than it ended: keys and limits see that records are missing, and count as
//	                                  called what may have been; calls hold until records can be stored
//	WEIR_RESULTS                      made again likewise: a job whose result may have been there is parked as unknown
//	WEIR_DEAD, WEIR_EVENTS            made again: their numbers go on
//	KV_weir_control, KV_weir_config,  not made again while weir runs: what an operator ordered is in memory only, and a bucket that is empty
//	KV_weir_leases                    would say that nothing was. A start makes it
//
// What must hold: no sequence of a stream that is made again was ever another message's; and nothing that is made again says that nothing was
// called before.
package streamwatch
