package httpapi

import (
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"
)

// selection selects letters: by the numbers in Seqs or, if Seqs is empty, by the other fields.
type selection struct {
	API    string   `json:"api,omitempty"` // _ for jobs of unknown apis
	Key    string   `json:"key,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Since  string   `json:"since,omitempty"` // RFC 3339, or how long ago, as in 2h or 1d
	Until  string   `json:"until,omitempty"`
	Status string   `json:"status,omitempty"` // 503, 5xx, or 0 for none
	Seqs   []uint64 `json:"seqs,omitempty"`
	// All says that no field is meant to select: without it an empty selection is refused.
	All bool `json:"all,omitempty"`
}

// choose returns the letters that s selects. It refuses an empty selection without All.
func (s *selection) choose(r *request) (deadview.Selection, error) {
	c := deadview.Choice{API: s.API, Key: s.Key, Reason: s.Reason, Since: s.Since, Until: s.Until, Status: s.Status}
	switch {
	case len(s.Seqs) == 0 && c == (deadview.Choice{}) && !s.All:
		return deadview.Selection{}, badRequest("nothing is chosen: say which letters, or all: true")
	case len(s.Seqs) > 0 && s.All:
		return deadview.Selection{}, badRequest("name letters by seqs, or choose all, not both")
	}
	chosen, err := c.Select(s.Seqs, r.asked)
	if err != nil {
		return chosen, badRequest("%v", err)
	}
	return chosen, nil
}

// choosing returns the query parameters that select letters, followed by more.
func choosing(more ...parameter) []parameter {
	reason := parameter{name: "reason", summary: "only with this reason", kind: text}
	for _, r := range deadletter.Reasons() {
		reason.words = append(reason.words, string(r))
	}
	return append([]parameter{
		{name: "api", summary: "only of this api; _ for jobs of unknown apis", kind: text},
		{name: "key", summary: "only of this key", kind: text},
		reason, since,
		{name: "until", summary: "only before this time, or until this long ago", kind: instant},
		{name: "status", summary: "only with this last answer, as in 503 or 5xx; 0 for none", kind: text},
		{name: "job", summary: "only of the job with this id; all letters are looked through for it", kind: text},
	}, more...)
}

// choice returns the values of the parameters that select letters.
func (r *request) choice() deadview.Choice {
	return deadview.Choice{
		API: r.word("api"), Key: r.word("key"), Reason: r.word("reason"), Since: r.word("since"), Until: r.word("until"), Status: r.word("status"), Job: r.word("job"),
	}
}

// chosen returns the filter that the parameters of a request make.
func chosen(r *request) (deadletter.Filter, error) {
	c := r.choice()
	f, err := c.Filter(r.asked)
	if err == nil {
		f.Before, err = r.seq("before")
	}
	if err != nil {
		return f, badRequest("%v", err)
	}
	return f, nil
}
