// Package webhook posts weir's events to the operators' addresses, for teams that do not listen on NATS, and the ends
// of jobs to the callbacks of their apis.
//
// A sender posts one feed: the messages that it reads from a stream, in loads. A feed of events (notices.go) is for
// one destination, and its loads are windows of events. The two feeds of a callback (ends.go) read the results and the
// letters of one api, and each load is one end. So nothing is stored for an end, and the streams bound what waits.
//
//	stream ── sender.send ──▶ feed.collect ──▶ load ── sending.deliver ──▶ receiver
//	                             progress.go: what is read and under way ──▶ position.go: weir_control
//
// Each destination has a lease, and all callbacks share one. The replica that holds the lease posts. A destination has
// one load under way at a time, so that its posts are in the order of the events. A callback's feed may have
// mostUnderWay ends under way; their first tries begin in the order of the ends.
//
// A post in the standard format is an event as its stream keeps it, a CloudEvent in JSON, with the headers of Standard
// Webhooks: webhook-id, which is the event's and the same in every try, webhook-timestamp, and webhook-signature (v1,
// HMAC-SHA256). A post in the slack format is a text with a sentence for each group of events. A post of an end has
// the same headers, and a body as Standard Webhooks recommends it (endbody.go); its id is that of the result or the
// letter.
//
// Events of one window are posted together, if the destination groups: those of one type and subject are one group.
// Groups keep the order of states: the last group of a subject says how it stands. The position is stored after each
// window, so a kill between a post and its note posts that window again.
//
// A post fails unless the receiver answers 2xx within 15 seconds. The sender tries it again after waits that double up
// to five minutes, or as Retry-After says, for as long as the stream keeps its messages. An end is also tried no longer
// than the callback says. A 4xx status refuses the post, except 401, 403, 404, 408, 410, 425 and 429, which concern the
// receiver. After five refusals the sender drops an event, so that an unreadable one does not hold up all others. It
// drops an end then only if a further one waits for its place, and the receiver has accepted others.
//
// # What must hold
//
//   - Nothing of weir waits for a receiver: messages are read from their stream, which is bounded by age and bytes.
//     While all loads are under way, no further message is read. A window keeps mostGroups groups and no other events,
//     and an end only its sequence. What the stream has dropped before it was sent is counted, and logged.
//   - No redirect is followed, no answer's body is kept, and neither secret nor address reaches a log: addresses of
//     chats are secrets.
//   - A message is behind the position, and not among those under way there, only after a 2xx or when it was given up.
//     A replica that has lost the lease posts and notes nothing, and notes that it has on their way are refused.
//   - A receiver that is removed and configured again does not get what happened meanwhile: its position is deleted
//     once it is not configured, even if it was removed while no replica ran.
//   - The position of a new callback is noted before its configuration is in force on any replica. It names the newest
//     version of the configuration that has the callback: a replica that follows an earlier one does not delete it.
package webhook
