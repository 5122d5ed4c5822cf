package spend

import (
	"math"
	"time"
	"unique"

	"weir/cmd/weir/internal/config"
)

// apart reports whether calls are grouped by their keys, or by a part of them.
func (b By) apart() bool { return b == ByKey || b == ByTenant }

// Account returns the same account as Of, but from the sums. Account.Since and Budget.From are rounded down to the
// beginning of a span. If the sums do not go back that far, earlier calls are missing. Account.Begins and Budget.Begins
// then say from when on the sums are complete.
func (s *Sums) Account(o Options) *Account {
	o = o.orDefault()
	grain := s.grain
	if o.By.apart() {
		grain = s.keyGrain
	}
	o.Since = floor(o.Since, grain)
	a, complete := newAdder(o), s.Since(o.Now)
	a.openBudgets()
	for _, b := range a.account.Budgets {
		b.From = floor(b.From, s.grain)
	}
	a.beginWith(complete)
	from := latest(o.Since, ceil(complete, grain))
	if from.After(o.Since) {
		a.account.Begins = from
	}
	for number, d := range s.days {
		if number >= dayOf(from) {
			s.countDay(a, number, d, from)
			a.account.Unreadable += d.missing
		}
	}
	s.addBudgets(a.account.Budgets)
	if o.By.apart() && s.keyless >= dayOf(from) {
		a.account.KeysSince = (s.keyless + 1).begin()
	}
	a.account.Reading = !s.whole && a.lacks()
	a.conclude()
	return a.account
}

// lacks reports whether the account or a budget does not have all its calls.
func (a *adder) lacks() bool {
	lacks := !a.account.Begins.IsZero()
	for _, b := range a.account.Budgets {
		lacks = lacks || !b.Begins.IsZero()
	}
	return lacks
}

// countDay counts the calls of a day, in spans that begin at or after from.
func (s *Sums) countDay(a *adder, number dayNumber, d *day, from time.Time) {
	count := func(api, key string, minute int16, of calls) {
		if at := number.at(minute); !at.Before(from) && (a.API == "" || a.API == api) {
			a.count(api, key, at, of)
		}
	}
	if a.By.apart() && number > s.keyless {
		for at, of := range d.keys {
			count(at.api.Value(), at.key.Value(), at.minute, of)
		}
		return
	}
	for at, of := range d.calls {
		count(at.api.Value(), "", at.minute, of)
	}
}

// addBudgets adds what calls took from budgets in their windows. It reads each sum only once, even if there are many
// budgets.
func (s *Sums) addBudgets(budgets []*Budget) {
	counted := make(map[limitName][]*Budget, len(budgets))
	earliest := dayNumber(math.MaxInt32)
	for _, b := range budgets {
		name := limitOf(b.API, b.Limit)
		counted[name] = append(counted[name], b)
		earliest = min(earliest, dayOf(b.countsFrom()))
	}
	for number, d := range s.days {
		if number < earliest {
			continue
		}
		for at, of := range d.limits {
			for _, b := range counted[at.limitName] {
				if !number.at(at.minute).Before(b.countsFrom()) {
					b.money.Plus(of.money)
				}
			}
		}
	}
}

// countsFrom returns the time from which on calls are counted.
func (b *Budget) countsFrom() time.Time { return latest(b.From, b.Begins) }

// Use returns how much of an api's limits was used in the last day. Limits of an account include the calls of all apis
// of the account. If the sums do not go back far enough, earlier calls are missing. Use.Begins then says from when on
// the sums are complete.
func (s *Sums) Use(api *config.API, now time.Time) *Use {
	u, complete := newUse(api, now), s.Since(now)
	begin := u.begin()
	if complete.After(begin) {
		u.Begins, u.Reading = complete, !s.whole
	}
	own, ofAccounts := unique.Make(api.Name), unique.Make("")
	for number, d := range s.days {
		if number < dayOf(begin) {
			continue
		}
		u.Unreadable += d.missing
		for at, of := range d.limits {
			if when := number.at(at.minute); (at.api == own || at.api == ofAccounts) && !when.Before(complete) {
				u.add(at.limit.Value(), when, of)
			}
		}
	}
	u.conclude()
	return u
}
