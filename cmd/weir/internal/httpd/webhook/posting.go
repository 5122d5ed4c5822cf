package webhook

import (
	"slices"

	"weir/cmd/weir/internal/serve/admin"
)

// Posting says whether a stored end of a job was posted to the callback of its api. It uses the position that the
// posting replica stored last. It returns nil if the api has no callback, or if the end is in no stream of ends. It is
// safe for concurrent use.
func (s *Senders) Posting(end admin.EndPlace) *admin.Posting {
	for _, kind := range endKinds() {
		if kind.stream() != end.Stream || s.configuredCallback(end.API) == nil {
			continue
		}
		e, known := s.lags.of(end.API + "." + string(kind))
		if !known {
			return &admin.Posting{State: admin.PostingUnknown}
		}
		return e.posting(end.Seq)
	}
	return nil
}

// posting says what became of the end at a sequence. It says Posted only if the position proves it.
func (e entry) posting(seq uint64) *admin.Posting {
	p := &admin.Posting{}
	place, isGivenUp := e.GivenUp.find(seq)
	switch {
	case seq > e.Seq:
		p.State = admin.PostingWaits
	case slices.ContainsFunc(e.Open, func(o underWay) bool { return o.Seq == seq }):
		p.State = admin.PostingTried
	case isGivenUp:
		given := e.GivenUp.Ends[place]
		p.State, p.GivenUpAt, p.Why = admin.PostingGivenUp, given.At, given.Why
	case seq < e.From:
		p.State, p.Why = admin.PostingSettled, "the job ended before the callback was last configured"
	case seq <= e.GivenUp.Unlisted:
		p.State = admin.PostingSettled
	default:
		p.State = admin.Posted
	}
	if p.State == admin.PostingWaits || p.State == admin.PostingTried {
		p.Behind, p.Oldest = max(1, uint64(len(e.Open))+e.Unread), e.oldest()
		p.Failing, p.Why = e.Failing, e.Why
	}
	return p
}
