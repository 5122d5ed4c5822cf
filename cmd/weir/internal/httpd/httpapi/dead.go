package httpapi

import (
	"context"
	"errors"
	"fmt"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
)

// letterList answers GET /dead.
type letterList struct {
	Letters []deadview.Letter `json:"letters"`
	// Next is the before of the next page; absent on the last.
	Next uint64 `json:"next,omitempty"`
}

// causeList answers GET /dead/stats.
type causeList struct {
	Causes  []*deadview.Count `json:"causes"` // the most frequent first
	Letters int               `json:"letters"`
}

// deadLetters lists, counts and shows dead letters, and makes inquiries about them.
type deadLetters struct {
	*Options

	tally *deadview.Tally
}

func (l *deadLetters) list(ctx context.Context, r *request) (any, error) {
	f, err := chosen(r)
	if err != nil {
		return nil, err
	}
	list, limit := letterList{Letters: []deadview.Letter{}}, r.number(listLimit)
	store, err := deadview.Open(ctx, l.Connection)
	if errors.Is(err, deadletter.ErrNoStream) {
		return list, nil
	} else if err != nil {
		return nil, err
	}
	err = store.Newest(ctx, f, limit+1, func(k deadletter.Kept) error {
		if len(list.Letters) == limit {
			list.Next = list.Letters[limit-1].Seq
			return stream.ErrEnough
		}
		list.Letters = append(list.Letters, deadview.Of(&k))
		return nil
	})
	if err != nil && !errors.Is(err, stream.ErrEnough) {
		return nil, l.Connection.Explain(err)
	}
	return list, nil
}

func (l *deadLetters) count(ctx context.Context, r *request) (any, error) {
	f, err := chosen(r)
	if err != nil {
		return nil, err
	}
	list := causeList{Causes: []*deadview.Count{}}
	store, err := deadview.Open(ctx, l.Connection)
	if errors.Is(err, deadletter.ErrNoStream) {
		return list, nil
	} else if err != nil {
		return nil, err
	}
	counts, err := l.tally.Count(ctx, store.Browser, f)
	if err != nil {
		return nil, l.Connection.Explain(err)
	}
	for _, n := range counts {
		list.Causes, list.Letters = append(list.Causes, n), list.Letters+n.Letters
	}
	return list, nil
}

// letter returns the letter whose sequence is in the path.
func (l *deadLetters) letter(ctx context.Context, r *request) (*deadletter.Kept, error) {
	seq, err := deadview.ParseSeq(r.PathValue("seq"))
	if err != nil {
		return nil, err
	}
	store, err := deadview.Open(ctx, l.Connection)
	if err != nil {
		return nil, err
	}
	return store.Letter(ctx, seq)
}

// show answers GET /dead/{seq}.
func (l *deadLetters) show(ctx context.Context, r *request) (any, error) {
	k, err := l.letter(ctx, r)
	if err != nil {
		return nil, err
	}
	return deadview.Covered(k), nil
}

func (l *deadLetters) reveal(ctx context.Context, r *request) (any, error) {
	k, err := l.letter(ctx, r)
	if err != nil {
		return nil, err
	}
	looked := deadletter.Event{Type: deadletter.RevealedEvent, API: k.API, Key: k.Key, Data: deadletter.RevealData{
		Who: r.who.String(), Job: k.JobID, DeadLetterSeq: k.Seq,
	}}
	if err := looked.Publish(ctx, l.Connection.JetStream); err != nil { // without the event the body is not shown
		return nil, cli.Unreachable(fmt.Errorf("the letter is not revealed, because the event that records it could not be stored: %w", err))
	}
	return deadview.Whole(k), nil
}

func (l *deadLetters) reconcile(ctx context.Context, r *request) (any, error) {
	k, err := l.letter(ctx, r)
	if err != nil {
		return nil, err
	}
	api, err := l.named(k.API)
	switch {
	case err != nil:
		return nil, err
	case !k.CanBeAsked():
		return nil, cli.Refused(fmt.Errorf("letter %d has the reason %s: inquiries are only for letters with the reason unknown", k.Seq, k.Reason))
	case k.Operation != "" && api.Operation == nil:
		return nil, cli.Refused(fmt.Errorf("api %s has no operation in its configuration any more", api.Name))
	case k.Operation == "" && api.Inquiry == nil:
		return nil, cli.Refused(fmt.Errorf("api %s has no inquiry in its configuration", api.Name))
	}
	return admin.Reconcile(l.Connection, api.Name, k.Seq)
}
