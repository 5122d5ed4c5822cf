// Package webhook posts weir's events to the operators' addresses, for teams that do not listen on NATS.
//
// Each destination has a lease and a position in weir_control: the last event that was sent, or given up. The replica
// that holds the lease posts, in the order of the events, one post at a time. So each destination is retried alone, and
// one that fails holds up no other.
//
// A post in the standard format is an event as its stream keeps it, a CloudEvent in JSON, with the headers of Standard
// Webhooks: webhook-id, which is the event's and the same in every try, webhook-timestamp, and webhook-signature (v1,
// HMAC-SHA256). A post in the slack format is a text with a sentence for each group of events.
//
// Events of one window are posted together, if the destination groups: those of one type and subject are one group. Groups
// keep the order of states: the last group of a subject says how it stands. The position is stored after each window, so a kill between a post and its note posts that window again.
//
// Any answer but 2xx, and no answer within 15 seconds, is a failure. The post is tried again after waits that double up
// to five minutes, or as Retry-After says. A receiver may refuse a post with a 4xx status, except 401, 403, 404, 408,
// 410, 425 and 429, which concern the receiver. After five refusals the post is dropped, so that an unreadable event
// does not hold up all others. After other failures it is tried for as long as the stream keeps its events.
//
// # What must hold
//
//   - Nothing of weir waits for a receiver: events are read from their stream, which is bounded by age and bytes. While a post fails, no
//     further event is read. A window keeps mostGroups groups and no other events. What the stream has dropped before it was sent is
//     counted, and logged.
//   - No redirect is followed, no answer's body is kept, and neither secret nor address reaches a log: addresses of chats are secrets.
//   - A position is noted only after a 2xx, or when its events were given up. A replica that has lost the lease notes nothing.
//   - A destination that is configured again does not receive what happened meanwhile: the position of one that is not configured
//     is deleted, also if it was removed while no replica ran.
package webhook
