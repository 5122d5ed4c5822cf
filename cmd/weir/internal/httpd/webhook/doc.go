// Package webhook posts weir's events to the operators' addresses, for teams that do not listen on NATS. It also posts
// the ends of jobs to the callbacks of their apis.
//
// A sender posts one feed: it reads messages from a stream and makes loads of them. A feed of events (notices.go) is
// for one destination, and its loads are windows of events. A callback has two feeds (ends.go): one reads the results
// of its api, the other its letters. Each of their loads is one end. So weir stores nothing more for an end, and the
// streams bound what waits.
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
// If the destination groups events, the events of one window are posted together. Events of one type and subject are
// one group. Groups keep the order of states: the last group of a subject tells its present state. The sender stores
// its position after each window, so a kill between a post and the new position posts that window again.
//
// A post fails unless the receiver answers 2xx within 15 seconds. The sender tries it again after waits that double up
// to five minutes, or after the time in Retry-After, for as long as the stream keeps its messages. It tries an end no
// longer than the callback's for. A 4xx status refuses the post, except 401, 403, 404, 408, 410, 425 and 429, which
// concern the receiver. After five refusals the sender drops an event, so that an unreadable one does not block all
// others. It drops a refused end only if another end waits for its place and the receiver has accepted others.
//
// Any replica can tell from a callback's position whether an end was posted (posting.go). The position lists the ends
// that are under way, and the newest ends that were given up (given.go). The receiver has accepted every other end at
// or before the position, unless the end is older than the list of given-up ends or than the callback.
//
// # What must hold
//
//   - No other part of weir waits for a receiver. Messages wait in their stream, which age and bytes bound. While all
//     loads are under way, the sender reads no further message. A window keeps mostGroups groups and only counts
//     further events. An end keeps only its sequence in memory. If the stream drops a message before it was posted, the
//     sender counts and logs that.
//   - The sender follows no redirect and keeps no answer's body. Neither secrets nor addresses reach a log, because the
//     addresses of chats are secrets.
//   - A message counts as settled only after a 2xx or after it was given up. Settled means at or before the position,
//     and not among the messages that the position lists as under way. A replica that has lost the lease posts nothing
//     and stores no position. The server refuses a position that such a replica has still on its way.
//   - weir reports an end as posted only if the position proves it. The stored position may be a second old, so for
//     that long weir may still report a posted end as waiting.
//   - A receiver that is removed and configured again does not get the messages of the time between. weir deletes its
//     position once it is not configured, even if it was removed while no replica ran.
//   - weir stores the position of a new callback before its configuration is in force on any replica. The position
//     names the newest version of the configuration that has the callback, so that a replica with an earlier version
//     does not delete it.
package webhook
