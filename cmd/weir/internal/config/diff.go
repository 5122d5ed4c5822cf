package config

import (
	"maps"
	"slices"
	"strings"
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
		if before[path].text != after[path].text && !toldOtherwise(path, before, after) {
			changes = append(changes, Change{Path: path, Old: before[path].text, New: after[path].text})
		}
	}
	return changes
}

// describe returns the values of the file as texts. It parses the file again, because few configurations are ever
// compared, and the texts of a large file take more memory than its values.
func (c *Config) describe() texts {
	if c == nil {
		return texts{}
	}
	doc := &document{describes: true, site: c.site, inForce: c.inForce}
	root, _ := doc.open(c.text)
	all, _ := new(Config).section().read(root)
	return all
}

// toldOtherwise reports whether the difference at path appears under another path. A mapping that only one side has is
// one change, which covers all paths below it. A mapping that both sides have differs by its fields only.
func toldOtherwise(path string, before, after texts) bool {
	for i := range path {
		if (path[i] == '.' || path[i] == '[') && before[path[:i]].whole != after[path[:i]].whole {
			return true
		}
	}
	return before[path].whole && after[path].whole
}

// Concerns reports whether any of the changes affects the api. A change of accounts, dedupe or results.max_body affects
// all apis.
func Concerns(changes []Change, api string) bool {
	path := "apis." + api
	for _, c := range changes {
		ofAccounts := c.Path == "accounts" || strings.HasPrefix(c.Path, "accounts.")
		if c.Path == path || strings.HasPrefix(c.Path, path+".") || ofAccounts || c.Path == "results.max_body" || c.Path == "dedupe" {
			return true
		}
	}
	return false
}
