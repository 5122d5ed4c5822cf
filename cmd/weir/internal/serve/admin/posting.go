package admin

import (
	"context"
	"slices"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
)

// EndPlace is the place of a job's stored end: of its result in WEIR_RESULTS, or of its letter in WEIR_DEAD.
type EndPlace struct {
	API    string `json:"api"`
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`
}

// PostingState says whether the end of a job was posted to the callback of its api: a closed set.
type PostingState string

// The states of a posting.
const (
	PostingWaits   PostingState = "waits"    // it was not tried yet
	PostingTried   PostingState = "tried"    // it is tried, and neither accepted nor given up
	Posted         PostingState = "posted"   // the receiver has accepted it
	PostingGivenUp PostingState = "given_up" // weir has given it up
	PostingSettled PostingState = "settled"  // weir posts it no more, and does not know whether the receiver has accepted it
	PostingNone    PostingState = "none"     // weir does not post it
	PostingUnknown PostingState = "unknown"  // weir does not know how far the callback has come
)

// Posting says whether the end of a job was posted to the callback of its api. weir notes once a second what it has
// posted, so a post may have been accepted a second before Posting says so.
type Posting struct {
	State PostingState `json:"state"`
	// Behind counts the ends of the same type, job.done or job.dead, that are neither posted nor given up, with this one.
	// It is 0 in any other state than waits and tried.
	Behind    uint64    `json:"behind,omitempty"`
	Oldest    time.Time `json:"oldest,omitzero"`        // when the oldest of these was stored, if known
	Failing   time.Time `json:"failing_since,omitzero"` // when the receiver began to accept no post; absent if it accepts posts
	GivenUpAt time.Time `json:"given_up_at,omitzero"`   // when weir gave it up
	// Why is why the receiver accepts no post, why weir has given the end up, why weir does not post it, or why weir does
	// not know whether it was posted.
	Why string `json:"why,omitempty"`
}

// Text says in a sentence whether the end was posted.
func (p *Posting) Text() string {
	switch p.State {
	case PostingWaits:
		return "waits to be posted" + p.backlog()
	case PostingTried:
		return "is tried, and not accepted yet" + p.backlog()
	case Posted:
		return "posted: the receiver has accepted it"
	case PostingGivenUp:
		return "given up at " + cli.ClockTime(p.GivenUpAt) + ": " + cli.Visible(p.Why)
	case PostingSettled:
		if p.Why == "" {
			return "weir does not know any more whether it was posted"
		}
		return "weir does not know whether it was posted: " + cli.Visible(p.Why)
	case PostingNone:
		return "not posted: " + cli.Visible(p.Why)
	case PostingUnknown:
		if p.Why != "" {
			return "not known: " + cli.Visible(p.Why)
		}
	}
	return "not known: the replica that was asked does not know how far the callback has come"
}

// backlog says how many other ends are not posted yet, and since when the receiver accepts none.
func (p *Posting) backlog() (text string) {
	if p.Behind > 1 {
		text = "; " + cli.Count(p.Behind-1, "other end") + " " + cli.Verb(int(p.Behind-1), "is", "are") + " not posted yet"
		if !p.Oldest.IsZero() {
			text += ", the oldest from " + cli.ClockTime(p.Oldest)
		}
	}
	if !p.Failing.IsZero() {
		text += "; the receiver has accepted no post since " + cli.ClockTime(p.Failing) + ": " + cli.Visible(p.Why)
	}
	return text
}

// postingsReply answers a question with ends. A posting is nil if the api has no callback.
type postingsReply struct {
	Postings []*Posting `json:"postings"`
}

// PostingsOf returns for each of a job's ends whether it was posted to the callback of its api, as one replica knows
// it. A posting is nil if the api has no callback. If PostingsOf fails, no posting is known.
func PostingsOf(ctx context.Context, c *connect.Connection, job string, ends []EndPlace) ([]*Posting, error) {
	all := make([]*Posting, 0, len(ends))
	for some := range slices.Chunk(ends, mostWaits) {
		var reply postingsReply
		if err := askIndex(ctx, c, tracesSubject, tracesOf{Job: job, Ends: some}, &reply); err != nil {
			return nil, err
		}
		if len(reply.Postings) != len(some) {
			return nil, errUnreadable
		}
		all = append(all, reply.Postings...)
	}
	return all, nil
}
