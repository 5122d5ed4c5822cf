package config

import (
	"maps"
	"slices"
)

// Explained is a value in force, with where it comes from: a line of the file, a vendor's profile, a move of shares,
// or else weir's own default.
type Explained struct {
	Path   string `json:"path"` // as in apis.sms.retry.on
	Value  string `json:"value"`
	Line   int    `json:"line,omitempty"`   // of the file
	Moved  bool   `json:"moved,omitempty"`  // weir shares has put it in force
	Vendor string `json:"vendor,omitempty"` // whose profile has the value
	Says   string `json:"says,omitempty"`   // what the vendor documents
	Page   string `json:"page,omitempty"`   // where it says so
	Date   string `json:"date,omitempty"`   // of the page that was read
}

// Explain returns every value in force, sorted by path. Secrets appear by reference only.
func (c *Config) Explain() []Explained {
	all := c.describe()
	var values []Explained
	for _, path := range slices.Sorted(maps.Keys(all)) {
		t := all[path]
		if t.whole {
			continue
		}
		s := Explained{Path: path, Value: t.text, Line: t.from.line, Moved: t.from.moved}
		if f := t.from.fact; f != nil {
			s.Vendor, s.Says, s.Page, s.Date = f.vendor, f.Says, f.Page, f.Date
		}
		values = append(values, s)
	}
	return values
}

// sourced is a vendor's fact with the vendor's name.
type sourced struct {
	vendor string
	*Fact
}

// origin is where a value in force comes from: a fact, a move of shares, or a line of the file. The zero value stands
// for weir's own default.
type origin struct {
	line  int
	fact  *sourced
	moved bool // weir shares put the value in force
}

// origin returns where the value comes from.
func (v value) origin() origin {
	switch {
	case v.node == nil:
		return origin{}
	case v.doc.facts[v.node] != nil:
		return origin{fact: v.doc.facts[v.node]}
	}
	return origin{line: v.line}
}
