package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Profile is what a vendor documents about its API: values for an api's fields that a file leaves out.
type Profile struct {
	Name string
	// Period is the period of the limits whose remainder the vendor's answers report. Answers report nothing about
	// limits with other periods, which begin anew at other times.
	Period time.Duration
	Facts  []Fact
}

// Fact is the value of one field of an api, according to the vendor's documents.
type Fact struct {
	// Field is the field's path below the api. limits.NAME.FIELD applies to the file's limit of that name, if such a
	// limit may have the field. A profile adds no limit.
	Field string
	Value string // as a file would have it
	Says  string // what the vendor says
	Page  string // where the vendor says it
	Date  string // date of the page
}

// Revision returns the date of the newest fact and a checksum of all values. Adding, changing or removing a fact
// changes the revision, whatever the date of its page.
func (p *Profile) Revision() string {
	date, sum := "", sha256.New()
	_, _ = fmt.Fprintln(sum, p.Period) // a hash never fails
	for i := range p.Facts {
		f := &p.Facts[i]
		_, _ = fmt.Fprintln(sum, f.Field, f.Value)
		date = max(date, f.Date)
	}
	return date + "/" + hex.EncodeToString(sum.Sum(nil)[:4])
}

// Vendor says which profile an api uses. The zero value means none.
type Vendor struct {
	Name    string
	Without []string // paths of fields that the profile must not set
}

// mostWithout bounds Vendor.Without.
const mostWithout = 64

func (o *Vendor) section() section {
	var names []string
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return section{
		fields: []field{
			{
				name: "name", is: one(&o.Name, orEmpty(word(names...))),
				needs: "write one of " + strings.Join(names, ", "),
				means: "the vendor. A value in the file overrides the vendor's",
			},
			{
				name: "without", otherwise: "none",
				is: many(&o.Without, mostWithout,
					free("at most 64 paths of fields of the profile, as in `retry.hold`", o.without)),
				means: "fields, with everything below them, for which weir ignores the vendor's values and uses its own defaults",
			},
		},
	}
}

// without reads the path of a field that the vendor's profile sets, or of a mapping with such a field.
func (o *Vendor) without(text string) (string, error) {
	p := profileOf(o.Name)
	if p == nil {
		return text, nil // the name is missing or unknown, which is reported elsewhere
	}
	var paths []string
	for i := range p.Facts {
		if field := p.Facts[i].Field; within(field, text) {
			return text, nil
		} else if !slices.Contains(paths, field) {
			paths = append(paths, field)
		}
	}
	fix := "look at the table of " + o.Name + " in weir help vendors"
	if Closest(text, paths) != "" {
		fix = meant(text, paths)
	}
	return "", refuse(fix, "the profile of %s has no field %s", o.Name, quote(text))
}

// within reports whether path equals above or is below it.
func within(path, above string) bool { return path == above || strings.HasPrefix(path, above+".") }

// profileOf returns the profile called name, or nil.
func profileOf(name string) *Profile {
	all := Profiles()
	if i := slices.IndexFunc(all, func(p Profile) bool { return p.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// filled returns an api's mapping, completed with values from its vendor's profile. It copies nodes before it changes
// them, because an alias may use the same nodes elsewhere. The values get the line that names the vendor, so that
// problems with them point there.
func (d *document) filled(v value) value {
	if v.node == nil || v.node.Kind != yaml.MappingNode || d.visits >= maxVisits {
		return v
	}
	name, without := vendorIn(v)
	p := profileOf(name.node.Value)
	if p == nil {
		return v
	}
	f := filling{doc: d, vendor: p.Name, period: p.Period, line: name.line, own: map[*yaml.Node]bool{}}
	v.node = f.copied(v.node)
	for i := range p.Facts {
		fact := &p.Facts[i]
		if slices.ContainsFunc(without, func(above string) bool { return within(fact.Field, above) }) {
			continue
		}
		path := strings.Split(fact.Field, ".")
		if path[0] == "limits" {
			f.fillLimits(v.node, path[1], path[2:], fact)
		} else {
			f.fill(v.node, path, fact)
		}
	}
	return v
}

// vendorIn returns the name of an api's vendor, and the fields that its profile must not set.
func vendorIn(v value) (name value, without []string) {
	name = v.at(&yaml.Node{}, v.line, v.path)
	at, ok := v.entry("vendor")
	switch {
	case !ok:
	case at.node.Kind == yaml.ScalarNode:
		name = at
	case at.node.Kind == yaml.MappingNode:
		if of, ok := at.entry("name"); ok && of.node.Kind == yaml.ScalarNode {
			name = of
		}
		if list, ok := at.entry("without"); ok && list.node.Kind == yaml.SequenceNode {
			for _, item := range list.node.Content[:min(len(list.node.Content), mostWithout)] {
				without = append(without, list.at(item, list.line, list.path).node.Value)
			}
		}
	}
	return name, without
}

// entry returns the value of one key of a mapping, and whether the mapping has that key. It adds no problem to the
// document, whatever the mapping holds.
func (v value) entry(name string) (value, bool) {
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		if key := v.node.Content[i]; key.Kind == yaml.ScalarNode && key.Value == name {
			return v.at(v.node.Content[i+1], max(key.Line, 1), joinPath(v.path, name)), true
		}
	}
	return value{}, false
}

// filling puts facts into copies of an api's nodes.
type filling struct {
	doc    *document
	vendor string
	period time.Duration       // of the limits whose remainder answers report
	line   int                 // of the vendor's name
	own    map[*yaml.Node]bool // the copies, which may be changed
}

// copied returns a copy of a node that f may change. A node that f copied before is returned as it is.
func (f *filling) copied(node *yaml.Node) *yaml.Node {
	if f.own[node] {
		return node
	}
	own := *node
	own.Content = slices.Clone(node.Content)
	f.own[&own] = true
	return &own
}

// inner replaces the value at a position of own by a copy that f may change, and returns the copy. ok is false if the
// value is not of this kind. A null counts as an empty mapping.
func (f *filling) inner(own *yaml.Node, at int, kind yaml.Kind) (*yaml.Node, bool) {
	node := own.Content[at]
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	if kind == yaml.MappingNode && isNull(node) {
		node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: node.Line}
	}
	if node.Kind != kind {
		return nil, false
	}
	own.Content[at] = f.copied(node)
	return own.Content[at], true
}

// fill sets a fact at a path below a mapping, unless the file has a value there or on the way. It ignores the case of
// names, as header names do; a name of a field in the wrong case is a problem anyway.
func (f *filling) fill(mapping *yaml.Node, path []string, fact *Fact) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if !strings.EqualFold(mapping.Content[i].Value, path[0]) {
			continue
		}
		if len(path) == 1 {
			return
		}
		if inner, ok := f.inner(mapping, i+1, yaml.MappingNode); ok {
			f.fill(inner, path[1:], fact)
		}
		return
	}
	if beside := companion(path[len(path)-1]); beside != "" && (len(path) > 1 || !has(mapping, beside)) {
		return
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: path[0], Line: f.line}
	var node *yaml.Node
	if len(path) == 1 {
		node = f.written(fact)
	} else {
		node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: f.line}
		f.own[node] = true
		f.fill(node, path[1:], fact)
	}
	mapping.Content = append(mapping.Content, key, node)
}

// companion returns the field without which the given field means nothing, or "". The file or vendor.without may have
// left the companion out.
func companion(field string) string {
	switch field {
	case "left_until":
		return "left"
	case "for": // idempotency.for
		return "header"
	}
	return ""
}

// fillLimits sets a fact in each limit called name.
func (f *filling) fillLimits(api *yaml.Node, name string, path []string, fact *Fact) {
	for i := 0; i+1 < len(api.Content); i += 2 {
		if api.Content[i].Value != "limits" {
			continue
		}
		limits, ok := f.inner(api, i+1, yaml.SequenceNode)
		if !ok || len(limits.Content) > mostShared {
			return
		}
		for at := range limits.Content {
			limit, ok := f.inner(limits, at, yaml.MappingNode)
			if !ok {
				continue
			}
			of := value{doc: f.doc, node: limit}
			if named, ok := of.entry("name"); ok && named.node.Value == name && f.suits(path[0], of) {
				f.fill(limit, path, fact)
			}
		}
	}
}

// suits reports whether the field may stand in this limit. left and left_until must also be about its period.
func (f *filling) suits(field string, limit value) bool {
	rate, isRate := limit.entry("rate")
	quota, isQuota := limit.entry("quota")
	shadow, watches := limit.entry("shadow")
	if field != "left" && field != "left_until" {
		return isRate || isQuota && field != "counts"
	}
	var per time.Duration
	if isRate {
		r, _ := ParseRate(rate.node.Value) // what cannot be read has no period, and is reported later
		per = r.Per
	} else if isQuota {
		q, _ := parseQuota(quota.node.Value, quotaCount)
		per = q.Per
	}
	return per == f.period && (!watches || shadow.node.Value != "true")
}

// has reports whether a mapping has a key.
func has(mapping *yaml.Node, name string) bool {
	_, ok := value{node: mapping}.entry(name)
	return ok
}

// written returns a fact's value as nodes that the document attributes to the vendor.
func (f *filling) written(fact *Fact) *yaml.Node {
	var text yaml.Node
	if err := yaml.Unmarshal([]byte(fact.Value), &text); err != nil {
		panic("config: the value of " + fact.Field + " of vendor " + f.vendor + " is no YAML: " + err.Error())
	}
	if f.doc.facts == nil {
		f.doc.facts = map[*yaml.Node]*sourced{}
	}
	from := &sourced{f.vendor, fact}
	var mark func(node *yaml.Node)
	mark = func(node *yaml.Node) {
		node.Line, f.doc.facts[node] = f.line, from
		for _, inner := range node.Content {
			mark(inner)
		}
	}
	mark(text.Content[0])
	return text.Content[0]
}

// isLent reports whether any vendor's profile sets the field at path. path is as in descriptions of the file.
func isLent(path string) bool {
	field, ofAPI := strings.CutPrefix(path, "apis.NAME.")
	return ofAPI && slices.ContainsFunc(Profiles(), func(p Profile) bool {
		return slices.ContainsFunc(p.Facts, func(f Fact) bool { return f.Field == field })
	})
}

// Vendors returns the revisions of the profiles that the configuration uses, by vendor.
func (c *Config) Vendors() map[string]string {
	named := map[string]string{}
	for i := range c.APIs {
		if p := profileOf(c.APIs[i].Vendor.Name); p != nil {
			named[p.Name] = p.Revision()
		}
	}
	return named
}
