package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// field is one field of weir.yaml or one variable of the environment: everything that weir knows about it. doc.go says
// how to add one.
type field struct {
	name  string
	is    kind   // the values that it may have, and where the value is kept
	needs string // a field with one is required: it is the fix if the field is missing
	or    string // the default, as a file writes it
	means string

	// otherwise describes a default that no text states, for the tables and for differences. absent sets one that
	// follows from other fields.
	otherwise string
	absent    func()

	// Only variables have these. in is the field of a context of the nats command that may replace the variable, and
	// expand converts that field's value. empty says that a variable that is set to nothing has no value. Otherwise it
	// has its default.
	in     string
	expand func(string) (string, error)
	empty  bool
}

// section is a mapping whose names are known.
type section struct {
	fields []field
	// check is called after the fields were read, if the file has the mapping. It reports what the fields cause together.
	check func(f fields)
	// whole describes the mapping in a line. Without it the line has the fields that differ from their defaults.
	whole func() string
	// entryName names an entry of a list for differences. Without it the entry's position does.
	entryName func() string
	// relations are the relations between fields that JSON Schema can express.
	relations object
	// short allows to write a mapping as the value of its first field alone.
	short bool
	// fill returns the mapping with the values that the file leaves to something else, such as a vendor's profile.
	fill func(value) value
}

// fields is a mapping that was read.
type fields struct {
	value
	byName  map[string]value
	refused map[string]bool // fields with a problem, missing ones included
	left    map[string]bool // fields without effect, which no difference mentions
	before  int             // problems before the mapping was read
}

// read reads the mapping at v, and sets the default of each absent field. If the document describes, it returns the
// values as texts, and the line that describes the whole.
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

// open reads the names of the mapping at v. Any name that the section does not have is a problem.
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

// fine reports whether none of the fields was refused.
func (f fields) fine(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return f.refused[name] })
}

// clean reports whether the mapping has no problem so far.
func (f fields) clean() bool { return len(f.doc.problems) == f.before }

// absent returns the place of a field that the file does not have.
func (v value) absent(name string) value {
	return value{doc: v.doc, line: v.line, path: joinPath(v.path, name)}
}

// place returns the field's value for a message, or the mapping itself when the field is absent.
func (f fields) place(name string) value {
	if v, ok := f.byName[name]; ok {
		return v
	}
	return f.value
}

// leave keeps fields without effect out of differences.
func (f fields) leave(names ...string) {
	for _, name := range names {
		f.left[name] = true
	}
}

// ignored reports a problem for each present field that has no effect here; why follows their name.
func (f fields) ignored(why string, names ...string) {
	f.leave(names...)
	for _, name := range names {
		if v, ok := f.byName[name]; ok {
			v.fail("means nothing "+why, "remove it")
		}
	}
}

// text describes the present value, for differences; "" says that there is none.
func (fd field) text() string {
	switch {
	case fd.is.show == nil:
		return ""
	case fd.otherwise == "none":
		return fd.is.show()
	}
	return cmp.Or(fd.is.show(), strings.ReplaceAll(fd.otherwise, "`", ""))
}

// text is a value as a text.
type text struct {
	text  string
	whole bool // it describes a mapping whose fields have texts of their own
	usual bool // it is the default
	from  origin
}

// texts describe a configuration by path, with defaults written out. Two configurations differ exactly if their texts
// do.
type texts map[string]text

// add adds texts below a path.
func (t texts) add(path string, more texts) {
	for rest, text := range more {
		t[under(path, rest)] = text
	}
}

// inWhole reports whether another text describes the mapping that has the path.
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

// Section is a mapping of weir.yaml, for descriptions of it.
type Section struct {
	Path      string // apis.NAME.retry, "" for the file
	Fields    []Field
	Relations map[string]any // between fields, as JSON Schema states them
}

// Field is one field of a mapping of weir.yaml, or a variable of the environment, with what the help says about it.
type Field struct {
	Name     string
	Default  string // a value in backticks, or words
	Values   string
	Meaning  string
	Required bool
	Lent     bool     // a vendor's profile has it, so that an api of that vendor need not
	Inner    *Section // the mapping in it, or in each of its entries
	// Shape returns its JSON Schema, given that of Inner.
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
