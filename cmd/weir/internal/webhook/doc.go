// Package webhook posts weir's events to an address of the operator's, for teams that do not listen on NATS.
//
// A post is an event as its stream keeps it, a CloudEvent in JSON, with the headers of Standard Webhooks: webhook-id,
// which is the event's and the same in every try, webhook-timestamp, and webhook-signature (v1, HMAC-SHA256). One
// replica at a time sends, by a lease in weir_control. Beside the lease is the position: the last event that was sent,
// or given up. The position is stored after each event, so a kill between a post and its note posts that event again,
// under its id.
//
// Events are sent in their order, one at a time. Any answer but 2xx, and no answer within 15 seconds, is a failure. The
// event is tried again after waits that double up to five minutes, or as Retry-After says. A receiver may refuse an
// event with a 4xx status, except 401, 403, 404, 408, 410, 425 and 429, which concern the receiver. After five refusals
// the event is dropped, so that an unreadable event does not hold up all others. After other failures the event is
// tried for as long as the stream keeps it.
//
// # What must hold
//
//   - Nothing of weir waits for a receiver: events are read from their stream, which is bounded by age and bytes. What the stream has
//     dropped before it was sent is counted, and logged.
//   - No redirect is followed, no answer's body is kept, and neither secret nor address reaches a log: addresses of chats are secrets.
//   - An event is noted as sent only after a 2xx. A replica that has lost the lease notes nothing.
package webhook
