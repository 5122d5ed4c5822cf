package field

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config/problem"
)

// Field describes one field of weir.yaml or one variable of the environment completely. doc.go says how to add one.
type Field struct {
	Name  string
	Is    Kind   // the values that the field may have, and where its value is stored
	Needs string // if not empty, the field is required, and this is the fix if it is missing
	Or    string // the default, as a file would have it
	Means string

	// Absent sets a default that depends on other fields. Otherwise describes a default that the member Or cannot
	// express, for tables and differences.
	Otherwise string
	Absent    func()

	// Only variables have the next three. In is the field of a nats context that may replace the variable, and Expand
	// converts that field's value. Empty means that a variable set to the empty string has no value; without it such a
	// variable has its default.
	In     string
	Expand func(string) (string, error)
	Empty  bool
}

// Section is a mapping with a fixed set of field names.
type Section struct {
	Fields []Field
	// Check runs after the fields were read, if the file has the mapping. It reports the problems that the fields cause
	// together.
	Check func(f Fields)
	// Whole describes the mapping in one line. If nil, the line lists the fields that differ from their defaults.
	Whole func() string
	// EntryName names an entry of a list in differences. If nil, the entry's position is its name.
	EntryName func() string
	// Relations are the relations between fields that JSON Schema can express.
	Relations Object
	// short allows a file to write the first field's value in place of the mapping.
	short bool
	// Fill returns the mapping completed with values from elsewhere, such as a vendor's profile.
	Fill func(Value) Value
}

// Fields is a mapping that was read from a document.
type Fields struct {
	Value
	byName  map[string]Value
	refused map[string]bool // fields with a problem, including missing ones
	left    map[string]bool // fields without effect, which differences leave out
	before  int             // number of problems before the mapping was read
}

// Read reads the mapping at v, and sets the default of each absent field. If the document describes, it also returns
// the values as texts, and a line that describes the whole mapping.
func (s Section) Read(v Value) (all Texts, whole string) {
	if s.Fill != nil {
		v = s.Fill(v)
	}
	f, ok := s.open(v)
	for _, fd := range s.Fields {
		if fd.Needs != "" && ok && v.Node != nil && !f.Has(fd.Name) {
			f.refused[fd.Name] = true
			f.Absent(fd.Name).Fail("is missing", fd.Needs)
		}
	}
	inner, usual := make([]Texts, len(s.Fields)), make([]string, len(s.Fields))
	for i, fd := range s.Fields {
		before := len(v.Doc.Problems)
		at, has := f.byName[fd.Name]
		if !has || fd.Is.Show != nil {
			if inner[i] = fd.Is.Read(f.Absent(fd.Name), fd.Or); v.Doc.Describes {
				usual[i] = fd.text()
			}
		}
		switch {
		case has:
			inner[i] = fd.Is.Read(at, "")
		case fd.Absent != nil:
			fd.Absent()
		}
		f.refused[fd.Name] = f.refused[fd.Name] || len(v.Doc.Problems) > before
	}
	if s.Check != nil && ok && v.Node != nil {
		s.Check(f)
	}
	if len(v.Doc.Problems) > 0 || !v.Doc.Describes {
		return nil, ""
	}
	all = Texts{}
	var differs []string
	for i, fd := range s.Fields {
		if f.left[fd.Name] {
			continue
		}
		if shown := fd.text(); shown != "" {
			inner[i] = Texts{"": {Text: shown, usual: !f.Has(fd.Name) || shown == usual[i], From: f.byName[fd.Name].Origin()}}
		}
		path := JoinPath("", fd.Name)
		for _, rest := range slices.Sorted(maps.Keys(inner[i])) {
			if text := inner[i][rest]; !text.usual && !inner[i].inWhole(rest) {
				differs = append(differs, under(path, rest)+" "+text.Text)
			}
		}
		if s.short && i == 0 {
			path = ""
		}
		all.add(path, inner[i])
	}
	if s.Whole != nil {
		return all, s.Whole()
	}
	return all, cmp.Or(strings.Join(differs, ", "), "with defaults")
}

// open collects the fields of the mapping at v by name. A name that the section does not have is a problem.
func (s Section) open(v Value) (Fields, bool) {
	f := Fields{
		Value:   v,
		byName:  map[string]Value{},
		refused: map[string]bool{},
		left:    map[string]bool{},
		before:  len(v.Doc.Problems),
	}
	names := make([]string, len(s.Fields))
	for i, fd := range s.Fields {
		names[i] = fd.Name
	}
	if s.short && v.IsScalar() {
		f.byName[names[0]] = v
		return f, true
	}
	entries, ok := v.Entries(maxVisits)
	for _, e := range entries {
		if !slices.Contains(names, e.Name) {
			e.Line = e.key
			e.Fail("there is no such field", problem.Meant(e.Name, names))
			continue
		}
		f.byName[e.Name] = e.Value
	}
	return f, ok
}

// Has reports whether the file has the field.
func (f Fields) Has(name string) bool {
	_, ok := f.byName[name]
	return ok
}

// Fine reports whether none of the named fields has a problem.
func (f Fields) Fine(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return f.refused[name] })
}

// Clean reports whether reading the mapping has found no problem so far.
func (f Fields) Clean() bool { return len(f.Doc.Problems) == f.before }

// Absent returns the place where a missing field would be.
func (v Value) Absent(name string) Value {
	return Value{Doc: v.Doc, Line: v.Line, Path: JoinPath(v.Path, name)}
}

// Place returns the value of a field for a message, or the mapping itself if the field is absent.
func (f Fields) Place(name string) Value {
	if v, ok := f.byName[name]; ok {
		return v
	}
	return f.Value
}

// Leave removes fields without effect from differences.
func (f Fields) Leave(names ...string) {
	for _, name := range names {
		f.left[name] = true
	}
}

// Ignored reports a problem for each present field that has no effect here. why ends the message "means nothing …".
func (f Fields) Ignored(why string, names ...string) {
	f.Leave(names...)
	for _, name := range names {
		if v, ok := f.byName[name]; ok {
			v.Fail("means nothing "+why, "remove it")
		}
	}
}

// text describes the present value for differences. It is empty if there is no value.
func (fd Field) text() string {
	switch {
	case fd.Is.Show == nil:
		return ""
	case fd.Otherwise == "none":
		return fd.Is.Show()
	}
	return cmp.Or(fd.Is.Show(), strings.ReplaceAll(fd.Otherwise, "`", ""))
}

// Text describes one value in a comparison or an explanation.
type Text struct {
	Text  string
	Whole bool // Text describes a mapping whose fields have texts of their own
	usual bool // the value is the default
	From  Origin
}

// Texts describes a configuration by path, with defaults written out. Configurations are equal if and only if their
// texts are.
type Texts map[string]Text

// add adds texts below a path.
func (t Texts) add(path string, more Texts) {
	for rest, text := range more {
		t[under(path, rest)] = text
	}
}

// inWhole reports whether a mapping above path has a text that describes all of it.
func (t Texts) inWhole(path string) bool {
	for i := range path {
		if (path[i] == '.' || path[i] == '[') && t[path[:i]].Whole {
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
