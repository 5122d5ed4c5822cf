package config

import (
	"fmt"
	"strings"

	"weir/bucket"
)

// CheckUnits fails if a limit of c keeps its name in next, but changes from a quota to a budget or from a budget to a
// quota. A limit keeps its count as long as it keeps its name. So next would read a number of calls as millionths of
// the currency unit, or the reverse, and the ledger would have both units under one name. file is the name of next in
// the error. c may be nil, which stands for no limits.
func (c *Config) CheckUnits(next *Config, file string) error {
	former := c.counted()
	wrong := &Errors{File: file}
	told := map[string]bool{}
	for i := range next.APIs {
		a := &next.APIs[i]
		for j := range a.Rules.Shared {
			l := &a.Rules.Shared[j]
			place := placeOf(a, l)
			was, now := former[place], l.Kind()
			changed := was == bucket.KindQuota && now == bucket.KindBudget || was == bucket.KindBudget && now == bucket.KindQuota
			if told[place] || !changed {
				continue
			}
			told[place] = true
			wrong.Problems = append(wrong.Problems, Problem{
				Path: place, Message: fmt.Sprintf("it was a %s and is a %s now: it would keep its count, which is in another unit", was, now),
				Fix: "give the limit another name",
			})
		}
	}
	if len(wrong.Problems) > 0 {
		return wrong
	}
	return nil
}

// counted returns the kinds of all shared limits, by the paths that placeOf returns.
func (c *Config) counted() map[string]bucket.Kind {
	kinds := map[string]bucket.Kind{}
	for i := 0; c != nil && i < len(c.APIs); i++ {
		a := &c.APIs[i]
		for j := range a.Rules.Shared {
			kinds[placeOf(a, &a.Rules.Shared[j])] = a.Rules.Shared[j].Kind()
		}
	}
	return kinds
}

// placeOf returns the path of a limit in the configuration. Limits of an account have the same place in all apis.
func placeOf(a *API, l *bucket.Limit) string {
	if l.Account != "" {
		return "accounts." + l.Account + ".limits." + strings.TrimPrefix(l.Name, l.Account+"/")
	}
	return "apis." + a.Name + ".limits." + l.Name
}
