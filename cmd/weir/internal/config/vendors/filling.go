// Package vendors has what vendors document about their APIs, and fills in the fields of an api that a file leaves out.
// profiles.go has the facts. A fact is put into the tree of the file before it is read, so it is checked, compared and
// explained as if the file had it.
package vendors

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"

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

// Choice says which profile an api uses. The zero value means none.
type Choice struct {
	Name    string
	Without []string // paths of fields that the profile must not set
}

// mostWithout bounds Choice.Without.
const mostWithout = 64

// Section returns the fields of the choice.
func (o *Choice) Section() field.Section {
	var names []string
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return field.Section{
		Fields: []field.Field{
			{
				Name: "name", Is: field.One(&o.Name, field.OrEmpty(field.Word(names...))),
				Needs: "write one of " + strings.Join(names, ", "),
				Means: "the vendor. A value in the file overrides the vendor's",
			},
			{
				Name: "without", Otherwise: "none",
				Is: field.Many(&o.Without, mostWithout,
					field.Free("at most 64 paths of fields of the profile, as in `retry.hold`", o.without)),
				Means: "fields, with everything below them, for which weir ignores the vendor's values and uses its own defaults",
			},
		},
	}
}

// without reads the path of a field that the vendor's profile sets, or of a mapping with such a field.
func (o *Choice) without(text string) (string, error) {
	p := Of(o.Name)
	if p == nil {
		return text, nil // the name is missing or unknown, which is reported elsewhere
	}
	var paths []string
	for i := range p.Facts {
		if path := p.Facts[i].Field; within(path, text) {
			return text, nil
		} else if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	fix := "look at the table of " + o.Name + " in weir help vendors"
	if problem.Closest(text, paths) != "" {
		fix = problem.Meant(text, paths)
	}
	return "", problem.Refuse(fix, "the profile of %s has no field %s", o.Name, problem.Quote(text))
}

// within reports whether path equals above or is below it.
func within(path, above string) bool { return path == above || strings.HasPrefix(path, above+".") }

// Of returns the profile called name, or nil.
func Of(name string) *Profile {
	all := Profiles()
	if i := slices.IndexFunc(all, func(p Profile) bool { return p.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Filled returns an api's mapping, completed with values from its vendor's profile. Of a list of more than mostLimits
// limits it changes none. It copies nodes before it changes them, because an alias may use the same nodes elsewhere.
// The values get the line that names the vendor, so that problems with them point there.
func Filled(v field.Value, mostLimits int) field.Value {
	if v.Node == nil || v.Node.Kind != yaml.MappingNode || v.Doc.Full() {
		return v
	}
	name, without := vendorIn(v)
	p := Of(name.Node.Value)
	if p == nil {
		return v
	}
	f := filling{
		doc: v.Doc, vendor: p.Name, period: p.Period, line: name.Line, own: map[*yaml.Node]bool{}, mostLimits: mostLimits,
	}
	v.Node = f.copied(v.Node)
	for i := range p.Facts {
		fact := &p.Facts[i]
		if slices.ContainsFunc(without, func(above string) bool { return within(fact.Field, above) }) {
			continue
		}
		path := strings.Split(fact.Field, ".")
		if path[0] == "limits" {
			f.fillLimits(v.Node, path[1], path[2:], fact)
		} else {
			f.fill(v.Node, path, fact)
		}
	}
	return v
}

// vendorIn returns the name of an api's vendor, and the fields that its profile must not set.
func vendorIn(v field.Value) (name field.Value, without []string) {
	name = v.At(&yaml.Node{}, v.Line, v.Path)
	at, ok := v.Entry("vendor")
	switch {
	case !ok:
	case at.Node.Kind == yaml.ScalarNode:
		name = at
	case at.Node.Kind == yaml.MappingNode:
		if of, ok := at.Entry("name"); ok && of.Node.Kind == yaml.ScalarNode {
			name = of
		}
		if list, ok := at.Entry("without"); ok && list.Node.Kind == yaml.SequenceNode {
			for _, item := range list.Node.Content[:min(len(list.Node.Content), mostWithout)] {
				without = append(without, list.At(item, list.Line, list.Path).Node.Value)
			}
		}
	}
	return name, without
}

// filling puts facts into copies of an api's nodes.
type filling struct {
	doc    *field.Document
	vendor string
	period time.Duration       // of the limits whose remainder answers report
	line   int                 // of the vendor's name
	own    map[*yaml.Node]bool // the copies, which may be changed

	mostLimits int
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
	if kind == yaml.MappingNode && field.IsNull(node) {
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
		if !ok || len(limits.Content) > f.mostLimits {
			return
		}
		for at := range limits.Content {
			limit, ok := f.inner(limits, at, yaml.MappingNode)
			if !ok {
				continue
			}
			of := field.Value{Doc: f.doc, Node: limit}
			if named, ok := of.Entry("name"); ok && named.Node.Value == name && f.suits(path[0], of) {
				f.fill(limit, path, fact)
			}
		}
	}
}

// suits reports whether the field may stand in this limit. left and left_until must also be about its period.
func (f *filling) suits(field string, limit field.Value) bool {
	rate, isRate := limit.Entry("rate")
	quota, isQuota := limit.Entry("quota")
	shadow, watches := limit.Entry("shadow")
	if field != "left" && field != "left_until" {
		return isRate || isQuota && field != "counts"
	}
	var per time.Duration
	if isRate {
		r, _ := grammar.ParseRate(rate.Node.Value) // what cannot be read has no period, and is reported later
		per = r.Per
	} else if isQuota {
		q, _ := grammar.ParseQuota(quota.Node.Value, grammar.QuotaCount)
		per = q.Per
	}
	return per == f.period && (!watches || shadow.Node.Value != "true")
}

// has reports whether a mapping has a key.
func has(mapping *yaml.Node, name string) bool {
	_, ok := field.Value{Node: mapping}.Entry(name)
	return ok
}

// written returns a fact's value as nodes that the document attributes to the vendor.
func (f *filling) written(fact *Fact) *yaml.Node {
	var text yaml.Node
	if err := yaml.Unmarshal([]byte(fact.Value), &text); err != nil {
		panic("vendors: the value of " + fact.Field + " of vendor " + f.vendor + " is no YAML: " + err.Error())
	}
	from := &field.Attribution{Vendor: f.vendor, Field: fact.Field, Says: fact.Says, Page: fact.Page, Date: fact.Date}
	var mark func(node *yaml.Node)
	mark = func(node *yaml.Node) {
		node.Line = f.line
		f.doc.Attribute(node, from)
		for _, inner := range node.Content {
			mark(inner)
		}
	}
	mark(text.Content[0])
	return text.Content[0]
}

// Lent reports whether any vendor's profile sets the field at path. path is as in descriptions of the file.
func Lent(path string) bool {
	of, ofAPI := strings.CutPrefix(path, "apis.NAME.")
	return ofAPI && slices.ContainsFunc(Profiles(), func(p Profile) bool {
		return slices.ContainsFunc(p.Facts, func(f Fact) bool { return f.Field == of })
	})
}
