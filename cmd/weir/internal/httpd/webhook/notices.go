package webhook

import (
	"context"
	"errors"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"

	"github.com/nats-io/nats.go/jetstream"
)

// notices is the feed of events for a destination. Its loads are windows.
type notices struct {
	*sending
	name   string
	window window
}

// collect implements feed.
func (n *notices) collect(msg jetstream.Msg, meta *jetstream.MsgMetadata) (c collected) {
	to := n.configuredDestination(n.name)
	if to == nil {
		return c // the sending is about to end
	}
	if gap := meta.Sequence.Stream - n.taken - 1; gap > 0 {
		n.lost(gap)
	}
	n.window.last = meta.Sequence.Stream
	e, ok := readEvent(msg.Data())
	if !ok || !slices.Contains(to.Events, e.kind) {
		return c
	}
	c = collected{held: true, begins: n.window.empty(), within: to.Group}
	if n.window.add(e); to.Group == 0 {
		c.full = n.complete()
	}
	return c
}

// complete implements feed.
func (n *notices) complete() load {
	if n.window.empty() {
		return nil
	}
	w := &windowLoad{n, n.window}
	n.window = window{last: n.window.last}
	return w
}

// resume panics, because a sender of events does not resume single events: it reads the whole window again.
func (n *notices) resume(underWay) load { panic("webhook: single events are not resumed") }

// lost implements feed.
func (n *notices) lost(events uint64) {
	n.count(dropped, int(events))
	n.log.Warn("events were dropped before they could be posted: the destination was down for longer than they are kept", "count", events)
}

// windowLoad is a window that is being posted.
type windowLoad struct {
	*notices
	window window
}

// errOtherFormat ends the tries of a post when the destination's format has changed.
var errOtherFormat = errors.New("the destination's format was changed")

// deliver implements load. In the slack format one post has all groups; in the standard format one post has one group.
func (w *windowLoad) deliver(ctx context.Context, at time.Time) error {
	for groups := w.window.groups; len(groups) > 0; {
		to := w.configuredDestination(w.name)
		if to == nil {
			return errNotConfigured
		}
		n := 1
		if to.Format == config.SlackFormat {
			n = len(groups)
		}
		err := w.sending.deliver(ctx, &groupsParcel{w.notices, to.Format, groups[:n], w.window.last}, at)
		switch {
		case err == nil:
			groups = groups[n:]
		case !errors.Is(err, errOtherFormat):
			return err
		}
		if len(groups) > 0 {
			at = w.pace.reserve(time.Now(), w.receiver())
		}
	}
	return nil
}

// groupsParcel has the groups of events for one post.
type groupsParcel struct {
	*notices
	format config.Format
	groups []*group
	last   uint64 // the newest event of the groups' window
}

// render implements parcel.
func (p *groupsParcel) render(ctx context.Context, try int) (message, error) {
	to := p.configuredDestination(p.name)
	switch {
	case to == nil:
		return message{}, errNotConfigured
	case to.Format != p.format:
		return message{}, errOtherFormat
	case try > 1 && p.gone(ctx):
		return message{}, &givenUp{dropped, "the stream of events does not keep them any more"}
	}
	return render(to, p.groups), nil
}

// gone reports whether the stream has dropped all events of the window.
func (p *groupsParcel) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	source, err := p.JetStream.Stream(ctx, p.stream)
	return err == nil && source.CachedInfo().State.FirstSeq > p.last // after an error it is unknown
}

// until implements parcel. Only the age and size of the stream bound the tries to post an event.
func (p *groupsParcel) until() time.Time { return time.Time{} }

// size implements parcel.
func (p *groupsParcel) size() (events int) {
	for _, g := range p.groups {
		events += g.events
	}
	return events
}

// sequence implements parcel.
func (p *groupsParcel) sequence() uint64 { return 0 }

// named implements parcel.
func (p *groupsParcel) named() []any { return []any{"event", p.groups[0].newest.id} }
