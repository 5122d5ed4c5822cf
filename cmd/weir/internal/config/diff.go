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

// Diff lists the differences when other replaces c, sorted by path. Two files that mean the same have none: a default
// that is written out is no change, nor is another order of fields. An api, a shared limit or another mapping that only one
// of them has is one change. A nil Config stands for none at all.
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

// describe returns the values of the file as texts. It reads the file again: the texts of a large one take more memory
// than its values do, and few configurations are ever compared.
func (c *Config) describe() texts {
	if c == nil {
		return texts{}
	}
	doc := &document{describes: true}
	root, _ := doc.open(c.text)
	all, _ := new(Config).section().read(root)
	return all
}

// toldOtherwise reports whether another line covers path: a mapping that only one side has is one line, and one that
// both have is described by its fields.
func toldOtherwise(path string, before, after texts) bool {
	for i := range path {
		if (path[i] == '.' || path[i] == '[') && before[path[:i]].whole != after[path[:i]].whole {
			return true
		}
	}
	return before[path].whole && after[path].whole
}

// Concerns reports whether one of the changes concerns the api, or all apis. A change of accounts concerns all apis.
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
