package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// field describes one field of weir.yaml or one variable of the environment completely. doc.go says how to add one.
type field struct {
	name  string
	is    kind   // the values that the field may have, and where its value is stored
	needs string // if not empty, the field is required, and this is the fix if it is missing
	or    string // the default, as a file would have it
	means string

	// absent sets a default that depends on other fields. otherwise describes a default that the member or cannot
	// express, for tables and differences.
	otherwise string
	absent    func()

	// Only variables have the next three. in is the field of a nats context that may replace the variable, and expand
	// converts that field's value. empty means that a variable set to the empty string has no value; without it such a
	// variable has its default.
	in     string
	expand func(string) (string, error)
	empty  bool
}

// section is a mapping with a fixed set of field names.
type section struct {
	fields []field
	// check runs after the fields were read, if the file has the mapping. It reports the problems that the fields cause
	// together.
	check func(f fields)
	// whole describes the mapping in one line. If nil, the line lists the fields that differ from their defaults.
	whole func() string
	// entryName names an entry of a list in differences. If nil, the entry's position is its name.
	entryName func() string
	// relations are the relations between fields that JSON Schema can express.
	relations object
	// short allows a file to write the first field's value in place of the mapping.
	short bool
	// fill returns the mapping completed with values from elsewhere, such as a vendor's profile.
	fill func(value) value
}

// fields is a mapping that was read from a document.
type fields struct {
	value
	byName  map[string]value
	refused map[string]bool // fields with a problem, including missing ones
	left    map[string]bool // fields without effect, which differences leave out
	before  int             // number of problems before the mapping was read
}

// read reads the mapping at v, and sets the default of each absent field. If the document describes, it also returns
// the values as texts, and a line that describes the whole mapping.
func (s section) read(v value) (all texts, whole string) {
	if s.fill != nil {
		v = s.fill(v)
	}
	f, ok := s.open(v)
	for _, fd := range s.fields {
		if fd.needs != "" && ok && v.node != nil && !f.has(fd.name) {
			f.refused[fd.name] = true
			f.absent(fd.name).fail("is missing", fd.needs)
		}
	}
	inner, usual := make([]texts, len(s.fields)), make([]string, len(s.fields))
	for i, fd := range s.fields {
		before := len(v.doc.problems)
		at, has := f.byName[fd.name]
		if !has || fd.is.show != nil {
			if inner[i] = fd.is.read(f.absent(fd.name), fd.or); v.doc.describes {
				usual[i] = fd.text()
			}
		}
		switch {
		case has:
			inner[i] = fd.is.read(at, "")
		case fd.absent != nil:
			fd.absent()
		}
		f.refused[fd.name] = f.refused[fd.name] || len(v.doc.problems) > before
	}
	if s.check != nil && ok && v.node != nil {
		s.check(f)
	}
	if len(v.doc.problems) > 0 || !v.doc.describes {
		return nil, ""
	}
	all = texts{}
	var differs []string
	for i, fd := range s.fields {
		if f.left[fd.name] {
			continue
		}
		if shown := fd.text(); shown != "" {
			inner[i] = texts{"": {text: shown, usual: !f.has(fd.name) || shown == usual[i], from: f.byName[fd.name].origin()}}
		}
		path := joinPath("", fd.name)
		for _, rest := range slices.Sorted(maps.Keys(inner[i])) {
			if text := inner[i][rest]; !text.usual && !inner[i].inWhole(rest) {
				differs = append(differs, under(path, rest)+" "+text.text)
			}
		}
		if s.short && i == 0 {
			path = ""
		}
		all.add(path, inner[i])
	}
	if s.whole != nil {
		return all, s.whole()
	}
	return all, cmp.Or(strings.Join(differs, ", "), "with defaults")
}

// open collects the fields of the mapping at v by name. A name that the section does not have is a problem.
func (s section) open(v value) (fields, bool) {
	f := fields{value: v, byName: map[string]value{}, refused: map[string]bool{}, left: map[string]bool{}, before: len(v.doc.problems)}
	names := make([]string, len(s.fields))
	for i, fd := range s.fields {
		names[i] = fd.name
	}
	if s.short && v.isScalar() {
		f.byName[names[0]] = v
		return f, true
	}
	entries, ok := v.entries(maxVisits)
	for _, e := range entries {
		if !slices.Contains(names, e.name) {
			e.line = e.key
			e.fail("there is no such field", meant(e.name, names))
			continue
		}
		f.byName[e.name] = e.value
	}
	return f, ok
}

// has reports whether the file has the field.
func (f fields) has(name string) bool {
	_, ok := f.byName[name]
	return ok
}

// fine reports whether none of the named fields has a problem.
func (f fields) fine(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return f.refused[name] })
}

// clean reports whether reading the mapping has found no problem so far.
func (f fields) clean() bool { return len(f.doc.problems) == f.before }

// absent returns the place where a missing field would be.
func (v value) absent(name string) value {
	return value{doc: v.doc, line: v.line, path: joinPath(v.path, name)}
}

// place returns the value of a field for a message, or the mapping itself if the field is absent.
func (f fields) place(name string) value {
	if v, ok := f.byName[name]; ok {
		return v
	}
	return f.value
}

// leave removes fields without effect from differences.
func (f fields) leave(names ...string) {
	for _, name := range names {
		f.left[name] = true
	}
}

// ignored reports a problem for each present field that has no effect here. why ends the message "means nothing …".
func (f fields) ignored(why string, names ...string) {
	f.leave(names...)
	for _, name := range names {
		if v, ok := f.byName[name]; ok {
			v.fail("means nothing "+why, "remove it")
		}
	}
}

// text describes the present value for differences. It is empty if there is no value.
func (fd field) text() string {
	switch {
	case fd.is.show == nil:
		return ""
	case fd.otherwise == "none":
		return fd.is.show()
	}
	return cmp.Or(fd.is.show(), strings.ReplaceAll(fd.otherwise, "`", ""))
}

// text describes one value in a comparison or an explanation.
type text struct {
	text  string
	whole bool // text describes a mapping whose fields have texts of their own
	usual bool // the value is the default
	from  origin
}

// texts describes a configuration by path, with defaults written out. Configurations are equal if and only if their
// texts are.
type texts map[string]text

// add adds texts below a path.
func (t texts) add(path string, more texts) {
	for rest, text := range more {
		t[under(path, rest)] = text
	}
}

// inWhole reports whether a mapping above path has a text that describes all of it.
func (t texts) inWhole(path string) bool {
	for i := range path {
		if (path[i] == '.' || path[i] == '[') && t[path[:i]].whole {
			return true
		}
	}
	return false
}

// under joins two parts of a path.
func under(path, rest string) string {
	if path == "" || rest == "" || rest[0] == '[' {
		return path + rest
	}
	return path + "." + rest
}

// Section describes a mapping of weir.yaml, for documentation.
type Section struct {
	Path      string // apis.NAME.retry, "" for the file
	Fields    []Field
	Relations map[string]any // between fields, as JSON Schema expresses them
}

// Field describes one field of a mapping of weir.yaml, or a variable of the environment, for documentation.
type Field struct {
	Name     string
	Default  string // a value in backticks, or words
	Values   string
	Meaning  string
	Required bool
	Lent     bool     // some vendor's profile sets it, so an api of that vendor may leave it out
	Inner    *Section // the mapping that the field is, or that each of its entries is
	// Shape returns the field's JSON Schema. inner is the schema of Inner.
	Shape func(inner map[string]any) map[string]any
}

// File returns all fields of weir.yaml.
func File() Section { return described("", new(Config).section()) }

func described(path string, s section) Section {
	d := Section{Path: path, Relations: s.relations}
	for _, fd := range s.fields {
		f := Field{
			Name: fd.name, Default: fd.otherwise, Values: fd.is.words, Meaning: fd.means, Required: fd.needs != "",
			Lent: isLent(under(path, fd.name)), Shape: fd.is.shape,
		}
		switch {
		case f.Required:
			f.Default = "required"
		case f.Default == "" && fd.or != "":
			f.Default = "`" + fd.or + "`"
		}
		if fd.is.inner != nil {
			inner := described(under(under(path, fd.name), fd.is.below), fd.is.inner())
			f.Inner = &inner
		}
		d.Fields = append(d.Fields, f)
	}
	return d
}
