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
		if t.Whole {
			continue
		}
		s := Explained{Path: path, Value: t.Text, Line: t.From.Line, Moved: t.From.Moved}
		if f := t.From.Vendor; f != nil {
			s.Vendor, s.Says, s.Page, s.Date = f.Vendor, f.Says, f.Page, f.Date
		}
		values = append(values, s)
	}
	return values
}
