package spend

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher/ledger"
)

// By is a property by which calls are grouped: one of the constants.
type By string

// The groupings. A tenant is the part of a key before the api's tenant_until. If the api has none, it is the part
// before the first dot.
const (
	ByAPI    By = "api"
	ByKey    By = "key"
	ByTenant By = "tenant"
	ByDay    By = "day" // of UTC
)

// Groupings returns all groupings.
func Groupings() []By { return []By{ByAPI, ByKey, ByTenant, ByDay} }

// Options say which calls to add up, and how.
type Options struct {
	UpTo   uint64             // sequence of the last record to read, as ledger.End returns it; 0: the newest
	By     By                 // "": ByAPI
	API    string             // only calls of this api; "": of all
	Since  time.Time          // only calls that started at or after this time; zero: today in UTC or, with ByDay, the last 31 days
	Now    time.Time          // selects the budgets' windows
	Limit  int                // the most groups to list: the dearest ones, or the newest days; 0: all
	Config *config.Config     // has the budgets, and says where tenants end in keys; nil if unknown
	Read   func(n, of uint64) // called with the progress, every few thousand records; may be nil
}

// Group is what was spent on the calls of one api, key, tenant or day.
type Group struct {
	API     string `json:"api,omitempty"`
	Key     string `json:"key,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	Day     string `json:"day,omitempty"`
	Calls   int64  `json:"calls"` // that were billed, or are in doubt
	Spent   string `json:"spent"`
	InDoubt string `json:"in_doubt"`
	// Usage holds the sums of what the apis' usage counts, by its names.
	Usage map[string]int64 `json:"usage,omitempty"`
	// Reused counts jobs that got the answers of equal ones without a call. Saved is what their calls would have cost,
	// as far as prices are fixed; absent if there are none.
	Reused int64  `json:"reused,omitempty"`
	Saved  string `json:"saved,omitempty"`

	sum calls
}

// Budget is the state of a budget in its present window, by the ledger. A budget of an account is listed for each of
// its apis, with what all of them spent.
type Budget struct {
	API     string    `json:"api"`
	Limit   string    `json:"limit"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until,omitzero"` // zero for a sliding one
	Spent   string    `json:"spent"`
	InDoubt string    `json:"in_doubt"`
	Budget  string    `json:"budget"`
	// Counted is what a running weir counts: what is spent and in doubt, and what calls under way may cost. "" if none
	// answered.
	Counted string `json:"counted,omitempty"`
	Shadow  bool   `json:"shadow,omitempty"`
	// Begins is from when on its calls are included, if that is later than From.
	Begins time.Time `json:"ledger_begins,omitzero"`

	limit *bucket.Limit
	money ledger.Spending
}

// Account is what was spent.
type Account struct {
	Since   time.Time `json:"since"` // calls from then on are added up
	Spent   string    `json:"spent"`
	InDoubt string    `json:"in_doubt"`
	// Usage holds the sums of what the apis' usage counts, by its names.
	Usage map[string]int64 `json:"usage,omitempty"`
	// Reused and Saved are the sums of the groups'.
	Reused  int64     `json:"reused,omitempty"`
	Saved   string    `json:"saved,omitempty"`
	Groups  []*Group  `json:"groups"`
	Lines   int       `json:"lines,omitempty"` // how many groups there are, if not all are listed
	Budgets []*Budget `json:"budgets"`
	// Unreadable counts records that cannot be read: the cost of their calls is not included.
	Unreadable int `json:"unreadable,omitempty"`
	// Gone are parts of the ledger that were lost: the cost of their calls is not included.
	Gone []limitstate.LedgerLoss `json:"gone,omitempty"`
	// Begins is from when on the ledger is complete, or the sums are, if that is later than requested.
	Begins time.Time `json:"ledger_begins,omitzero"`
	// Reading says that older records are still being read: Begins will soon be earlier.
	Reading bool `json:"reading,omitempty"`
	// Behind is how many of the newest records were not read in time: their calls are not included yet.
	Behind uint64 `json:"behind,omitempty"`
	// KeysSince is from when on calls are listed by their keys, if that is later than requested: there was no room for
	// more keys. Earlier calls are in a group without a key.
	KeysSince time.Time `json:"keys_since,omitzero"`
}

// usualDays is the number of days that ByDay reports by default.
const usualDays = 31

func midnight(now time.Time) time.Time { return now.UTC().Truncate(24 * time.Hour) }

// mostGroups bounds the number of groups. Calls of further groups are in one group without a name.
const mostGroups = 1 << 20

// readEvery is how many records are read between two reports of the progress.
const readEvery = 10_000

// From returns the time from which on calls are counted.
func (o Options) From() time.Time { return o.orDefault().Since }

// orDefault returns the options with defaults filled in.
func (o Options) orDefault() Options {
	o.By = cmp.Or(o.By, ByAPI)
	if o.Since.IsZero() {
		if o.Since = midnight(o.Now); o.By == ByDay {
			o.Since = o.Since.AddDate(0, 0, 1-usualDays)
		}
	}
	o.Since = o.Since.UTC()
	return o
}

// Of adds up what was spent, from the ledger. It blocks until it has read the ledger from the beginning of the period,
// or of the earliest budget's window. It fails with ledger.ErrNoLedger if there is no ledger. It needs no running weir.
// Sums.Account returns the same sums without reading the ledger.
func Of(ctx context.Context, c *connect.Connection, o Options) (*Account, error) {
	account, err := read(ctx, c, o.orDefault())
	if errors.Is(err, ledger.ErrNoLedger) {
		return nil, cli.NotFound(err)
	}
	return account, c.Explain(err)
}

func read(ctx context.Context, c *connect.Connection, o Options) (*Account, error) {
	a := newAdder(o)
	from := a.openBudgets()
	extent, err := ledger.ExtentOf(ctx, c.JetStream)
	if err == nil {
		a.beginWith(extent.Begins.UTC())
	}
	filter := ledger.Filter{API: o.API, Since: from, UpTo: o.UpTo}
	if a.hasAccounts() {
		filter.API = ""
	}
	a.account.Unreadable, err = ledger.Read(ctx, c.JetStream, filter, func(r *ledger.Record, read, of uint64) error {
		if o.Read != nil && read%readEvery == 0 {
			o.Read(read, of)
		}
		a.add(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.conclude()
	return a.account, a.account.AddLosses(ctx, c)
}

// hasAccounts reports whether any budget belongs to an account. Calls of several apis take from such a budget.
func (a *adder) hasAccounts() bool {
	return slices.ContainsFunc(a.account.Budgets, func(b *Budget) bool { return b.limit.Account != "" })
}

// beginWith records that the account has all calls only from complete on.
func (a *adder) beginWith(complete time.Time) {
	if complete.After(a.Since) {
		a.account.Begins = complete
	}
	for _, b := range a.account.Budgets {
		if complete.After(b.From) {
			b.Begins = complete
		}
	}
}

// AddLosses adds the parts of the ledger that were lost in the time that the account covers.
func (a *Account) AddLosses(ctx context.Context, c *connect.Connection) (err error) {
	from := a.Since
	for _, b := range a.Budgets {
		if b.From.Before(from) {
			from = b.From
		}
	}
	a.Gone, err = limitstate.LedgerLosses(ctx, c.JetStream, connect.ControlBucket, from)
	return err
}

// adder adds up calls for an account.
type adder struct {
	Options
	groups  map[groupName]*Group
	total   calls
	account *Account
}

func newAdder(o Options) *adder {
	return &adder{Options: o, groups: map[groupName]*Group{}, account: &Account{Since: o.Since, Groups: []*Group{}, Budgets: []*Budget{}}}
}

// HasBudgets reports whether the selected apis have a budget.
func (o *Options) HasBudgets() bool {
	a := adder{Options: *o, account: &Account{}}
	a.openBudgets()
	return len(a.account.Budgets) > 0
}

// openBudgets adds the budgets with their windows. It returns from when on the ledger must be read.
func (a *adder) openBudgets() (from time.Time) {
	from = a.Since
	if a.Config == nil {
		return from
	}
	for i := range a.Config.APIs {
		api := &a.Config.APIs[i]
		if a.API != "" && api.Name != a.API {
			continue
		}
		rules := api.CallRules()
		for k := range rules.Shared {
			if l := &rules.Shared[k]; l.Budget != nil {
				b := &Budget{API: api.Name, Limit: l.Name, limit: l, Budget: grammar.Money(l.Budget.Count).String(), Shadow: l.Shadow}
				b.From, b.Until = window(l, a.Now)
				if b.From.Before(from) {
					from = b.From
				}
				a.account.Budgets = append(a.account.Budgets, b)
			}
		}
	}
	return from
}

// window returns the present window of a limit's budget.
func window(l *bucket.Limit, now time.Time) (from, until time.Time) {
	if l.Budget.Window == bucket.Sliding {
		return now.Add(-l.Budget.Per).UTC(), time.Time{}
	}
	start, end := l.Budget.Period(bucket.MicrosOf(now))
	return start.Time(), end.Time()
}

func (a *adder) add(r *ledger.Record) {
	for _, b := range a.account.Budgets {
		if _, in := r.Took(b.limit); in && (b.API == r.API || b.limit.Account != "") && !limitstate.ChargedAt(r).Time().Before(b.From) {
			b.money.AddRecord(r)
		}
	}
	if of, some := callsOf(r); some && !r.Started.Before(a.Since) && (a.API == "" || a.API == r.API) {
		a.count(r.API, r.Key, r.Started, of)
	}
}

// count adds calls of one key. They started at at, or in the span that begins at at.
func (a *adder) count(api, key string, at time.Time, of calls) {
	a.total.plus(of)
	a.group(a.nameOf(api, key, at)).sum.plus(of)
}

// use adds usage to a sum. A sum that would overflow becomes the largest int64, because an API may report any number.
func use(sum *map[string]int64, usage map[string]int64) {
	for name, n := range usage {
		if *sum == nil {
			*sum = map[string]int64{}
		}
		if had := (*sum)[name]; n > math.MaxInt64-had {
			(*sum)[name] = math.MaxInt64
		} else {
			(*sum)[name] = had + n
		}
	}
}

// groupName identifies a group.
type groupName struct{ api, key, tenant, day string }

// nameOf returns the group of a call. Calls without a key belong to one tenant.
func (a *adder) nameOf(api, key string, at time.Time) groupName {
	switch a.By {
	case ByKey:
		return groupName{api: api, key: key}
	case ByTenant:
		return groupName{api: api, tenant: a.tenant(api, key)}
	case ByDay:
		return groupName{day: at.UTC().Format(time.DateOnly)}
	case ByAPI:
	}
	return groupName{api: api}
}

func (a *adder) tenant(of, key string) string {
	if a.Config != nil {
		if api, ok := a.Config.API(of); ok && api.Rules.TenantUntil != "" {
			return api.Rules.Tenant(key)
		}
	}
	tenant, _, _ := strings.Cut(key, ".")
	return tenant
}

func (a *adder) group(name groupName) *Group {
	g := a.groups[name]
	if g == nil && len(a.groups) >= mostGroups {
		name = groupName{}
		g = a.groups[name]
	}
	if g == nil {
		g = &Group{API: name.api, Key: name.key, Tenant: name.tenant, Day: name.day}
		a.groups[name] = g
	}
	return g
}

// conclude fills in the account from the groups. The most expensive groups come first; days are in their order.
func (a *adder) conclude() {
	out := a.account
	out.Spent, out.InDoubt = a.total.money.Text()
	out.Usage = a.total.usage
	out.Reused, out.Saved = a.total.saving.Text()
	for _, g := range a.groups {
		out.Groups = append(out.Groups, g)
	}
	slices.SortFunc(out.Groups, func(x, y *Group) int {
		return cmp.Or(strings.Compare(x.Day, y.Day), cmp.Compare(y.sum.worth(), x.sum.worth()),
			strings.Compare(x.API, y.API), strings.Compare(x.Key, y.Key), strings.Compare(x.Tenant, y.Tenant))
	})
	if a.Limit > 0 {
		out.Cut(a.Limit)
	}
	for _, g := range out.Groups {
		g.Calls, g.Usage = g.sum.n, g.sum.usage
		g.Spent, g.InDoubt = g.sum.money.Text()
		g.Reused, g.Saved = g.sum.saving.Text()
	}
	for _, b := range out.Budgets {
		b.Spent, b.InDoubt = b.money.Text()
	}
}

// BudgetsOf returns the budgets of one api, or of all if api is "".
func (a *Account) BudgetsOf(api string) []*Budget {
	of := []*Budget{}
	for _, b := range a.Budgets {
		if api == "" || b.API == api {
			of = append(of, b)
		}
	}
	return of
}

// Unfinished reports whether calls of the period are missing that will be included later.
func (a *Account) Unfinished() bool { return a.Behind > 0 || a.Reading && !a.Begins.IsZero() }

// Cut drops groups as Options.Limit does, so that the account has at most most groups.
func (a *Account) Cut(most int) {
	all := len(a.Groups)
	if all <= most {
		return
	}
	if a.Lines = max(a.Lines, all); a.Groups[0].Day != "" {
		a.Groups = a.Groups[all-most:]
	}
	a.Groups = slices.Clone(a.Groups[:most])
}

// Heard adds how much of the budgets of an api a running weir counts as used.
func (a *Account) Heard(api string, limits []limitstate.LimitShown) {
	for _, b := range a.Budgets {
		for i := range limits {
			if l := &limits[i]; b.API == api && l.Limit == b.Limit && !l.Unknown {
				b.Counted = limitstate.Amount(l.Used, l.Unit)
			}
		}
	}
}
