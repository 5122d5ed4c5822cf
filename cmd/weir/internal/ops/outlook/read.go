package outlook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// Question says what to plan from.
type Question struct {
	// API names the api to plan. Account names an account instead, and all its apis are planned together. If both are "",
	// the configuration must have a single api.
	API, Account string
	Since        time.Time      // jobs that came at this time or later
	Now          time.Time      // the end of the time to plan from
	Config       *config.Config // has the limits; nil: the running configuration
	Most         Bounds
	Read         func(what string, n, of uint64) // called with the progress; may be nil
}

// Bounds limit what is read. All are required.
type Bounds struct {
	Records int // of the ledger, of all apis that are planned together
	Letters int // of all apis that are planned together
	Keys    int // of all apis that are planned together
}

// Recorded is what was read for a Question.
type Recorded struct {
	Account string
	Config  *config.Config
	Pasts   []*Past
	Since   time.Time
	Until   time.Time // no job that came later was read
	Now     time.Time // the moment from which days ahead count
	Gaps
}

// Gaps are what the ledger and the letters do not tell. The plan lacks it.
type Gaps struct {
	// Waiting counts jobs that are not finished. The ledger does not know those of them that were never called. nil: no
	// running weir answered.
	Waiting *int `json:"waiting,omitempty"`
	// Unreadable counts records that cannot be read.
	Unreadable int `json:"unreadable,omitempty"`
	// Gone are parts of the ledger that were lost.
	Gone []limitstate.LedgerLoss `json:"gone,omitempty"`
	// Begins is since when the ledger is complete, if that is later than requested: older records were removed.
	Begins time.Time `json:"ledger_begins,omitzero"`
	// LettersBegin is since when letters are kept, if that is later than requested. Jobs that overflowed or expired
	// earlier are unknown.
	LettersBegin time.Time `json:"letters_begin,omitzero"`
	// ReadUntil is how far was read, if a bound was reached: later records or letters were left out, also of jobs that
	// came earlier.
	ReadUntil time.Time `json:"read_until,omitzero"`
	// Alone says that other apis of the account were not planned, although they take from the same limits.
	Alone bool `json:"alone,omitempty"`
}

// Read reads what the ledger and the letters say about the jobs since q.Since. It asks a running weir how many jobs
// wait, but needs none. It blocks until everything was read or a bound is reached. It fails if there are no jobs.
func Read(ctx context.Context, c *connect.Connection, q Question) (*Recorded, error) {
	if err := q.orRunning(ctx, c); err != nil {
		return nil, err
	}
	r, err := read(ctx, c, &q)
	if err != nil {
		return nil, err
	}
	if r.Jobs() == 0 {
		return nil, cli.NotFound(fmt.Errorf("the ledger and the letters have no job of %s since %s: name an earlier --since", r.name(), cli.ClockTime(q.Since)))
	}
	r.askWaiting(c)
	return r, nil
}

// orRunning gives a question without a configuration the running one. It panics if a bound is missing.
func (q *Question) orRunning(ctx context.Context, c *connect.Connection) error {
	if q.Most.Records < 1 || q.Most.Letters < 1 || q.Most.Keys < 1 {
		panic(fmt.Sprintf("outlook: bounds of %+v", q.Most))
	}
	if q.Config != nil {
		return nil
	}
	current, err := admin.CurrentVersion(ctx, c)
	if err != nil {
		return err
	}
	q.Config = current.Config
	return nil
}

// read is Read for a question with a configuration. It does not fail if there are no jobs, and asks no running weir.
func read(ctx context.Context, c *connect.Connection, q *Question) (*Recorded, error) {
	apis, err := q.apis()
	if err != nil {
		return nil, err
	}
	left := q.Most.Keys
	r := &Recorded{Account: q.Account, Config: q.Config, Since: q.Since, Until: q.Now, Now: q.Now}
	if kept := q.Now.Add(-q.Config.DeadLetters.MaxAge); kept.After(q.Since) {
		r.LettersBegin = kept.UTC()
	}
	for _, a := range apis {
		r.Pasts = append(r.Pasts, newPast(a, q.Since, q.Config.Dedupe, &left))
		r.Alone = r.Alone || a.Rules.In != nil && len(a.Rules.In.APIs) > len(apis)
	}
	if err := r.readLetters(ctx, c, q); err != nil {
		return nil, err
	}
	if err := r.readLedger(ctx, c, q); err != nil {
		return nil, err
	}
	return r, r.readExtent(ctx, c, q)
}

// apis returns the apis that a question is about.
func (q *Question) apis() (apis []*config.API, err error) {
	c := q.Config
	switch {
	case q.API != "" && q.Account != "":
		return nil, cli.Usage(errors.New("name an api or an account, not both"))
	case q.Account != "":
		if _, ok := c.Account(q.Account); !ok {
			return nil, noAccount(q.Account, c)
		}
		for i := range c.APIs {
			if c.APIs[i].Account == q.Account {
				apis = append(apis, &c.APIs[i])
			}
		}
		if len(apis) == 0 {
			return nil, cli.NotFound(fmt.Errorf("no api has the account %q: there is nothing to plan", q.Account))
		}
		return apis, nil
	case q.API == "" && len(c.APIs) == 1:
		return []*config.API{&c.APIs[0]}, nil
	case q.API == "":
		return nil, cli.Usage(fmt.Errorf("say which api with --api: %s; or which account with --account", strings.Join(c.Names(), ", ")))
	}
	a, ok := c.API(q.API)
	if !ok {
		return nil, admin.NoAPI(q.API, c)
	}
	return []*config.API{a}, nil
}

func noAccount(name string, c *config.Config) error {
	var names []string
	for i := range c.Accounts {
		names = append(names, c.Accounts[i].Name)
	}
	if len(names) == 0 {
		return cli.NotFound(fmt.Errorf("there is no account %q: none is configured; --api plans a single api", name))
	}
	return cli.NotFound(fmt.Errorf("there is no account %q; the configured ones are %s", name, strings.Join(names, ", ")))
}

// name names the apis for people.
func (r *Recorded) name() string {
	if r.Account != "" {
		return "the account " + r.Account
	}
	return "the api " + r.Pasts[0].API.Name
}

// Jobs returns the number of jobs of all apis.
func (r *Recorded) Jobs() (n int) {
	for _, p := range r.Pasts {
		n += p.trace.Jobs()
	}
	return n
}

// readEvery is the number of records or letters between two reports of the progress.
const readEvery = 10_000

// readUntil notes that jobs that came after at were left out.
func (r *Recorded) readUntil(at time.Time) {
	if r.Until.After(at) {
		r.Until, r.ReadUntil = at.UTC(), at.UTC()
	}
}

// readLetters adds the letters of each api. Each api may have an even part of the letters that the bound still allows.
// A server without a stream of letters has none.
func (r *Recorded) readLetters(ctx context.Context, c *connect.Connection, q *Question) error {
	b, err := deadletter.OpenBrowser(ctx, c.JetStream)
	if errors.Is(err, deadletter.ErrNoStream) {
		return nil
	} else if err != nil {
		return c.Explain(err)
	}
	left := q.Most.Letters
	for i, p := range r.Pasts {
		most, n := left/(len(r.Pasts)-i), 0
		err := b.Each(ctx, deadletter.Filter{API: p.API.Name, Since: q.Since}, func(k deadletter.Kept, read, of uint64) error {
			if n == most {
				r.readUntil(k.Stored)
				return stream.ErrEnough
			}
			if n++; q.Read != nil && read%readEvery == 0 {
				q.Read("letters", read, of)
			}
			p.letter(&k)
			return nil
		})
		if err != nil {
			return c.Explain(err)
		}
		left -= n
	}
	return nil
}

// errEnough ends the reading of the ledger at a bound.
var errEnough = errors.New("the bound is reached")

// readLedger adds the records of each api.
func (r *Recorded) readLedger(ctx context.Context, c *connect.Connection, q *Question) error {
	of, filter, n := map[string]*Past{}, ledger.Filter{Since: q.Since}, 0
	for _, p := range r.Pasts {
		of[p.API.Name], filter.APIs = p, append(filter.APIs, p.API.Name)
	}
	var err error
	r.Unreadable, err = ledger.Read(ctx, c.JetStream, filter, func(record *ledger.Record, read, all uint64) error {
		switch {
		case n == q.Most.Records:
			r.readUntil(record.Stored)
			return errEnough
		case record.Stored.After(r.Until):
			return errEnough
		}
		if n++; q.Read != nil && read%readEvery == 0 {
			q.Read("calls", read, all)
		}
		of[record.API].record(record)
		return nil
	})
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		return cli.NotFound(fmt.Errorf("%w: --trace plans from a file", err))
	case err != nil && !errors.Is(err, errEnough):
		return c.Explain(err)
	}
	for _, p := range r.Pasts {
		p.finish(r.Until)
	}
	return nil
}

// readExtent notes since when the ledger is complete, and which of its parts were lost.
func (r *Recorded) readExtent(ctx context.Context, c *connect.Connection, q *Question) error {
	extent, err := ledger.ExtentOf(ctx, c.JetStream)
	if err != nil {
		return c.Explain(err)
	}
	if extent.Begins.After(q.Since) {
		r.Begins = extent.Begins.UTC()
	}
	r.Gone, err = limitstate.LedgerLosses(ctx, c.JetStream, connect.ControlBucket, q.Since)
	return c.Explain(err)
}

// askWaiting asks the running weir how many jobs are not finished.
func (r *Recorded) askWaiting(c *connect.Connection) {
	replicas, err := admin.Status(c, 1, nil)
	if err != nil {
		return // no weir runs: what is recorded is enough
	}
	waiting := 0
	for i := range replicas {
		for k := range replicas[i].APIs {
			a := &replicas[i].APIs[k]
			if slices.ContainsFunc(r.Pasts, func(p *Past) bool { return p.API.Name == a.API }) {
				waiting += a.Jobs
			}
		}
	}
	r.Waiting = &waiting
}

// notes calls say with a sentence for each thing that was not read. later is the advice if a bound ended the reading.
func (g *Gaps) notes(say func(format string, args ...any), later string) {
	if !g.ReadUntil.IsZero() {
		say("read only until %s, because there is more than is read at once, and jobs that came earlier and ended later are missing: %s",
			cli.ClockTime(g.ReadUntil), later)
	}
	if !g.Begins.IsZero() {
		say("the ledger begins at %s: older records were removed", cli.ClockTime(g.Begins))
	}
	if !g.LettersBegin.IsZero() {
		say("letters are kept since %s: jobs that overflowed or expired earlier are not in the plan, and the growth has only the days since then",
			cli.ClockTime(g.LettersBegin))
	}
	if g.Unreadable > 0 {
		say("%s that cannot be read: not in the plan", cli.Count(g.Unreadable, "record"))
	}
	for i := range g.Gone {
		say("%s: not in the plan", g.Gone[i].Why())
	}
}

// moreKeys says why jobs were left out.
const moreKeys = "have more keys than one plan takes: not in the plan"

// neverCalled says which of the waiting jobs the plan lacks.
const neverCalled = "those that were never called are not in the plan"

// Notes returns a sentence for each thing that the plan does not know.
func (r *Recorded) Notes() (notes []string) {
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	r.notes(say, "name a later --since")
	switch {
	case r.Waiting == nil:
		say("no running weir answered, so it is unknown how many jobs wait: " + neverCalled)
	case *r.Waiting > 0:
		say("%s %s not finished: %s", cli.Count(*r.Waiting, "job"), cli.Verb(*r.Waiting, "is", "are"), neverCalled)
	}
	if r.Alone {
		say("the plan knows no other api of the account: --account %s plans all of them", r.Pasts[0].API.Account)
	}
	for _, p := range r.Pasts {
		p.note(say)
	}
	return notes
}

// note calls say with a sentence for each thing that the plan does not know about the jobs of one api.
func (p *Past) note(say func(format string, args ...any)) {
	jobs := func(n int) string { return cli.Count(n, "job") + " of " + p.API.Name }
	for _, gap := range []struct {
		n    int
		what string
	}{
		{p.LeftOut, moreKeys},
		{p.Redriven, "were redriven: they count when they were redriven, and also when they first came if they were called then"},
		{p.Reused, "got the answers of equal jobs: not in the plan"},
		{p.Packed, "shared their calls with others: the plan calls each alone"},
		{p.Imported, "have a letter from another server: not in the plan"},
	} {
		if gap.n > 0 {
			say("%s %s", jobs(gap.n), gap.what)
		}
	}
	if len(p.API.Rules.Admit) > 0 {
		say("the plan admits every job of %s: it leaves out admit", p.API.Name)
	}
}
