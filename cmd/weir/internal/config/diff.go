package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/problem"
)

// Change is one difference between two configurations.
type Change struct {
	Path string `json:"path"`          // as in apis.sms.bucket.rate
	Old  string `json:"old,omitempty"` // empty when the field is new
	New  string `json:"new,omitempty"` // empty when the field is gone
}

// String writes the change for people: "apis.sms.bucket.rate: 10/s -> 5/s".
func (c Change) String() string {
	switch {
	case c.Old == "":
		return c.Path + ": added " + c.New
	case c.New == "":
		return c.Path + ": removed " + c.Old
	default:
		return c.Path + ": " + c.Old + " -> " + c.New
	}
}

// Diff lists the differences when other replaces c, sorted by path. Files with the same meaning have no difference: the
// order of fields and written-out defaults do not count. A mapping that only one file has, such as an api or a shared
// limit, is one change. A nil Config is an empty configuration.
func (c *Config) Diff(other *Config) []Change {
	before, after := c.describe(), other.describe()
	paths := maps.Clone(before)
	maps.Copy(paths, after)
	var changes []Change
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if before[path].Text != after[path].Text && !toldOtherwise(path, before, after) {
			changes = append(changes, Change{Path: path, Old: before[path].Text, New: after[path].Text})
		}
	}
	return changes
}

// describe returns the values of the file as texts. It parses the file again, because few configurations are ever
// compared, and the texts of a large file take more memory than its values.
func (c *Config) describe() field.Texts {
	if c == nil {
		return field.Texts{}
	}
	doc := &field.Document{Describes: true}
	root, _ := doc.Open(c.text)
	all, _ := (&Config{site: c.site, inForce: c.inForce}).section().Read(root)
	return all
}

// toldOtherwise reports whether the difference at path appears under another path. A mapping that only one side has is
// one change, which covers all paths below it. A mapping that both sides have differs by its fields only.
func toldOtherwise(path string, before, after field.Texts) bool {
	for i := range path {
		if (path[i] == '.' || path[i] == '[') && before[path[:i]].Whole != after[path[:i]].Whole {
			return true
		}
	}
	return before[path].Whole && after[path].Whole
}

// Concerns reports whether any of the changes affects the api. A change of accounts, dedupe or results.max_body affects
// all apis.
func Concerns(changes []Change, api string) bool {
	path := "apis." + api
	for _, c := range changes {
		ofAccounts := c.Path == "accounts" || strings.HasPrefix(c.Path, "accounts.")
		if c.Path == path || strings.HasPrefix(c.Path, path+".") || ofAccounts || c.Path == "results.max_body" ||
			c.Path == "dedupe" {
			return true
		}
	}
	return false
}

// CheckUnits fails if a limit of c keeps its name in next, but changes from a quota to a budget or from a budget to a
// quota. A limit keeps its count as long as it keeps its name. So next would read a number of calls as millionths of
// the currency unit, or the reverse, and the ledger would have both units under one name. file is the name of next in
// the error. c may be nil, which stands for no limits.
func (c *Config) CheckUnits(next *Config, file string) error {
	former := c.counted()
	wrong := &problem.Errors{File: file}
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
			wrong.Problems = append(wrong.Problems, problem.Problem{
				Path:    place,
				Message: fmt.Sprintf("it was a %s and is a %s now: it would keep its count, which is in another unit", was, now),
				Fix:     "give the limit another name",
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
