package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/spend"
	"weir/dispatcher"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/micro"
)

// SpentQuestion is the question about what calls have cost. The zero value asks for today, by api.
type SpentQuestion struct {
	By    spend.By  `json:"by,omitempty"`
	API   string    `json:"api,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Limit int       `json:"limit,omitempty"` // the most groups; 0: as many as fit into an answer
}

// spent answers with what calls have cost.
func (o operator) spent(req micro.Request) {
	var q SpentQuestion
	if err := json.Unmarshal(req.Data(), &q); err != nil {
		respondError(req, fmt.Errorf("the question cannot be read: %w", err))
		return
	}
	asked := spend.Options{By: q.By, API: q.API, Since: q.Since, Now: time.Now(), Config: o.InForce(), Limit: q.Limit}
	o.aside(req, o.listing, busyListing, listTimeout, o.contained(func(ctx context.Context) (any, error) {
		a, err := o.Index.Spending(ctx, asked)
		for err == nil && len(marshal(a)) > o.most && len(a.Groups) > 1 {
			a.Cut(len(a.Groups) / 2)
		}
		return a, err
	}))
}

// use answers how much of an api's limits was used in the last day.
func (o operator) use(req micro.Request) {
	name := apiAsked(useSubject, req.Subject())
	api, ok := o.InForce().API(name)
	if !ok {
		respondError(req, fmt.Errorf("%w: %s", dispatcher.ErrNoAPI, name))
		return
	}
	o.aside(req, o.listing, busyListing, listTimeout, o.contained(func(ctx context.Context) (any, error) {
		return o.Index.LimitUse(ctx, api, time.Now())
	}))
}

// Spent returns what calls have cost, from the sums of one replica. Unlike spend.Of, Spent reads no records.
func Spent(ctx context.Context, c *connect.Connection, q SpentQuestion) (*spend.Account, error) {
	var a spend.Account
	if err := askIndex(ctx, c, spentSubject, q, &a); err != nil {
		return nil, orNoLedger(err)
	}
	return &a, nil
}

// UseOf returns how much of an api's limits was used in the last day, from the sums of one replica.
func UseOf(ctx context.Context, c *connect.Connection, api string) (*spend.Use, error) {
	var u spend.Use
	if err := askIndex(ctx, c, useSubject.Of(api), nil, &u); err != nil {
		return nil, orNoLedger(err)
	}
	return &u, nil
}

// orNoLedger returns the error of ledger.ErrNoLedger if a replica answered with that error, and err otherwise.
func orNoLedger(err error) error {
	if wrong := (*operatorError)(nil); errors.As(err, &wrong) && wrong.code == codeNoLedger {
		return cli.NotFound(ledger.ErrNoLedger)
	}
	return err
}
