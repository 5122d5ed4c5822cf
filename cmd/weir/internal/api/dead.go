package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/letters"
	"weir/deadletter"
)

// letterList answers GET /dead.
type letterList struct {
	Letters []letters.Letter `json:"letters"`
	// Next is the before of the next page; absent on the last.
	Next uint64 `json:"next,omitempty"`
}

// causeList answers GET /dead/stats.
type causeList struct {
	Causes  []*letters.Count `json:"causes"` // the most frequent first
	Letters int              `json:"letters"`
}

// choosing are the parameters that choose letters.
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

func deadRoutes() []route {
	return []route{
		{
			method: "GET", path: "/dead", name: "listLetters", role: console.Viewer, answer: letterList{}, atOnce: readsAtOnce, time: longRead,
			summary: "Dead letters, the newest first, without their bodies (weir dead ls)", query: choosing(before, listLimit), serve: (*API).listLetters,
		},
		{
			method: "GET", path: "/dead/stats", name: "countLetters", role: console.Viewer, answer: causeList{}, atOnce: 2, time: longRead,
			summary: "Dead letters counted by api, reason, status and bill (weir dead stats). The first question reads the headers of all of them, as does each that asks for a key or a job", query: choosing(),
			serve: (*API).countLetters,
		},
		{
			method: "GET", path: "/dead/{seq}", name: "showLetter", role: console.Viewer, answer: letters.Letter{},
			summary: "One dead letter (weir dead show): without its body, the body of the api's answer, and the values of the headers that its producer chose",
			serve: func(a *API, ctx context.Context, r *request) (any, error) {
				k, err := a.letter(ctx, r)
				if err != nil {
					return nil, err
				}
				return letters.Covered(k), nil
			},
		},
	}
}

// choice is what a request's parameters choose.
func (r *request) choice() letters.Choice {
	return letters.Choice{
		API: r.word("api"), Key: r.word("key"), Reason: r.word("reason"), Since: r.word("since"), Until: r.word("until"), Status: r.word("status"), Job: r.word("job"),
	}
}

// chosen is the filter of a request's parameters.
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

var errNoLetters = errors.New("no dead letter matches")

// explainScope says that a letter which was named is not there.
func (a *API) explainScope(err error) error {
	var missing *deadletter.MissingError
	if errors.As(err, &missing) {
		return cli.NotFound(err)
	}
	return a.Connection.Explain(err)
}

// browse opens the letters; nil where there never were any.
func (a *API) browse(ctx context.Context) (*deadletter.Browser, error) {
	b, err := deadletter.OpenBrowser(ctx, a.Connection.JetStream)
	if errors.Is(err, deadletter.ErrNoStream) {
		return nil, nil //nolint:nilnil // there are none to look at
	}
	return b, a.Connection.Explain(err)
}

func (a *API) listLetters(ctx context.Context, r *request) (any, error) {
	f, err := chosen(r)
	if err != nil {
		return nil, err
	}
	list, limit := letterList{Letters: []letters.Letter{}}, r.number(listLimit)
	b, err := a.browse(ctx)
	if err != nil || b == nil {
		return list, err
	}
	err = b.Newest(ctx, f, limit+1, func(k deadletter.Kept) error {
		if len(list.Letters) == limit {
			list.Next = list.Letters[limit-1].Seq
			return stream.ErrEnough
		}
		list.Letters = append(list.Letters, letters.Of(&k))
		return nil
	})
	if err != nil && !errors.Is(err, stream.ErrEnough) {
		return nil, a.Connection.Explain(err)
	}
	return list, nil
}

func (a *API) countLetters(ctx context.Context, r *request) (any, error) {
	f, err := chosen(r)
	if err != nil {
		return nil, err
	}
	list := causeList{Causes: []*letters.Count{}}
	b, err := a.browse(ctx)
	if err != nil || b == nil {
		return list, err
	}
	counts, err := a.tally.Count(ctx, b, f)
	if err != nil {
		return nil, a.Connection.Explain(err)
	}
	for _, n := range counts {
		list.Causes, list.Letters = append(list.Causes, n), list.Letters+n.Letters
	}
	return list, nil
}

// letter is the one that a path names.
func (a *API) letter(ctx context.Context, r *request) (*deadletter.Kept, error) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil || seq == 0 {
		return nil, badRequest("%q is not the number of a dead letter", r.PathValue("seq"))
	}
	gone := cli.NotFound(fmt.Errorf("there is no dead letter %d: it never was, or it was redriven, purged or too old", seq))
	b, err := a.browse(ctx)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, gone
	}
	k, err := b.Get(ctx, seq)
	if errors.Is(err, deadletter.ErrNoLetter) {
		return nil, gone
	}
	return &k, a.Connection.Explain(err)
}
