package deadview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// Redrive says which letters to submit again, and how.
type Redrive struct {
	Letters        Selection
	Rate           bucket.Rate
	IncludeUnknown bool             // also submit letters whose call may have been processed
	DropDeadline   bool             // submit the jobs without their deadlines
	Priority       string           // the jobs' priority; "": deadletter.RedrivePriority
	Edit           *deadletter.Edit // changes the only letter; nil: no change
	By             string
	Name           string // "": derived from the time
	Why            string
}

// UsualRate is the default pace at which a redrive submits letters. The rates of the letters' buckets bound the calls
// in any case.
const UsualRate = "100/s"

// RedrivePlan describes what a redrive would do, for --json and /api/v1.
type RedrivePlan struct {
	DryRun      bool                    `json:"dry_run"`
	Letters     int                     `json:"letters"`
	Keys        int                     `json:"keys"`
	Oldest      *time.Time              `json:"oldest,omitempty"`
	Cost        string                  `json:"cost"`
	BilledOnce  int                     `json:"billed_before"`
	BilledCost  string                  `json:"billed_before_cost"`
	MaybeBilled int                     `json:"maybe_billed"`
	DurationMS  int64                   `json:"duration_ms"`
	Rate        string                  `json:"rate"`
	Slowest     string                  `json:"slowest,omitempty"`
	NoRoom      int64                   `json:"no_room_now"` // if all came at once
	Overflow    int64                   `json:"overflow"`    // at the rate
	RoomyRate   string                  `json:"roomy_rate,omitempty"`
	Settled     int                     `json:"settled"`
	Skipped     map[deadletter.Skip]int `json:"skipped"`
}

// PlannedRedrive is a planned redrive, which Start starts.
type PlannedRedrive struct {
	*deadletter.Plan
	asked   Redrive
	redrive *deadletter.Redrive
	store   *Store
}

// PlanRedrive computes what a redrive would do under the terms of the configured apis. It changes nothing. It refuses
// an edited body that the letter's api would not accept: if such a job were submitted and refused, its new letter would
// lose the body.
func (s *Store) PlanRedrive(ctx context.Context, asked Redrive, terms func(api string) (deadletter.Terms, bool)) (*PlannedRedrive, error) {
	scope, err := s.Bound(ctx, asked.Letters.Selection)
	if err == nil && asked.Edit != nil {
		err = s.checkEdit(ctx, &asked, terms)
	}
	if err != nil {
		return nil, err
	}
	priority, err := ingest.ParsePriority(cmp.Or(asked.Priority, deadletter.RedrivePriority.String()))
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("priority %.20q: %w", asked.Priority, err))
	}
	o := deadletter.RedriveOptions{
		Conn: s.c.Conn, Browser: s.Browser, Terms: terms, Rate: asked.Rate, Edit: asked.Edit, Priority: &priority,
		Calls: func(ctx context.Context, q deadletter.CallsQuery, take func(deadletter.Trace)) (uint64, error) {
			return ledger.ReadSince(ctx, s.c.JetStream, q, take)
		},
		Valid: func() bool { return false }, Progress: func(*deadletter.Tally) {}, // a replica carries out the redrive
	}
	if asked.IncludeUnknown {
		o.Unknown = deadletter.IncludeUnknowns
	}
	if asked.Letters.Filter.Reason == deadletter.Cancelled || len(asked.Letters.Seqs) > 0 {
		o.Cancelled = deadletter.IncludeCancelleds
	}
	if asked.DropDeadline {
		o.Deadline = deadletter.DropDeadline
	}
	p := &PlannedRedrive{asked: asked, redrive: deadletter.NewRedrive(scope, o), store: s}
	if p.Plan, err = p.redrive.Plan(ctx); err != nil {
		return nil, s.c.Explain(err)
	}
	if !p.Found() {
		return nil, None(asked.Letters.Filter)
	}
	return p, nil
}

// checkEdit refuses an edit of several letters. It also refuses an edited body that the letter's api would not accept,
// or in which the api would find a key other than the letter's.
func (s *Store) checkEdit(ctx context.Context, asked *Redrive, terms func(api string) (deadletter.Terms, bool)) error {
	if len(asked.Letters.Seqs) != 1 {
		return cli.Usage(errors.New("edit: give the number of exactly one letter"))
	}
	k, err := s.Letter(ctx, asked.Letters.Seqs[0])
	if err != nil {
		return err
	}
	api, size := cmp.Or(k.API, k.AskedAPI), int64(len(asked.Edit.Body))
	of, ok := terms(api)
	if !ok {
		return nil
	}
	if size > of.MaxBody {
		return cli.Refused(fmt.Errorf("the body has %d bytes; api %s takes at most %d (max_body)", size, api, of.MaxBody))
	}
	if err := asked.Edit.CheckKey(k, of); err != nil {
		return cli.Refused(err)
	}
	return nil
}

// Shown returns the plan in its JSON form.
func (p *PlannedRedrive) Shown() RedrivePlan {
	shown := RedrivePlan{
		DryRun: true, Letters: p.Letters, Keys: p.Keys, Cost: grammar.Money(p.Cost).String(), BilledOnce: p.BilledBefore,
		BilledCost: grammar.Money(p.BilledBeforeCost).String(), MaybeBilled: p.MaybeBilled, DurationMS: p.Duration().Milliseconds(),
		Rate: grammar.FormatRate(p.asked.Rate), Slowest: p.Slowest, NoRoom: p.NoRoom, Overflow: p.Overflow, Settled: p.Settled, Skipped: p.Skipped,
	}
	if p.Roomy != nil {
		shown.RoomyRate = grammar.FormatRate(*p.Roomy)
	}
	if !p.Oldest.IsZero() {
		shown.Oldest = new(p.Oldest.UTC())
	}
	return shown
}

// Start stores the redrive as a task for a replica to carry out. It refuses a redrive that would skip all letters.
func (p *PlannedRedrive) Start(ctx context.Context) (task deadletter.Task, err error) {
	if p.Letters+p.Settled == 0 {
		return task, NoneRedriven(p.Skipped)
	}
	tasks, err := OpenTasks(ctx, p.store.c)
	if err != nil {
		return task, err
	}
	total := p.Letters + p.Settled
	for _, n := range p.Skipped {
		total += n
	}
	o := p.redrive.Order(deadletter.TaskOrder{
		Name: p.asked.Name, By: p.asked.By, Said: p.asked.Letters.Said, RateCount: p.asked.Rate.Count, RatePer: int64(p.asked.Rate.Per),
		Letters: p.Letters, Total: total, Cost: p.Cost,
	})
	if p.asked.Why != "" {
		o.Said += ": " + p.asked.Why
	}
	task, err = tasks.tasks.Start(ctx, p.redrive.Scope(), o)
	return task, tasks.explain(o.Name, err)
}

// NoneRedriven returns the error for a redrive that would skip all letters.
func NoneRedriven(skipped map[deadletter.Skip]int) error {
	var texts []string
	for _, skip := range slices.Sorted(maps.Keys(skipped)) {
		texts = append(texts, strconv.Itoa(skipped[skip])+" "+SkipText(skip))
	}
	return cli.Refused(fmt.Errorf("none of these letters could be redriven: %s", strings.Join(texts, "; ")))
}

// SkipText says why a redrive skips letters, and what would change that.
func SkipText(skip deadletter.Skip) string {
	switch skip {
	case deadletter.SkipUnknown:
		return "of unknown outcome: --include-unknown redrives them, and the api may bill them twice; dead reconcile asks the api"
	case deadletter.SkipCancelled:
		return "that were cancelled: --reason cancelled redrives them"
	case deadletter.SkipDeadline:
		return "whose deadline has passed: --drop-deadline redrives them"
	case deadletter.SkipResubmitted:
		return "whose producer has sent the job more than once, and weir took it: purge them"
	case deadletter.SkipSameID:
		return "whose id another job has got since: redrive that one first"
	case deadletter.SkipNoBody:
		return "whose body was too large to keep (413): their producer must send them again"
	case deadletter.SkipNoAPI:
		return "of apis that are not configured: configure the api again, or purge them"
	case deadletter.SkipNoKey:
		return "without a key: their producer must send them again"
	case deadletter.SkipForeign:
		return "that weir did not write"
	}
	return string(skip)
}
