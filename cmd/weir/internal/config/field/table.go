package field

// Table describes a mapping of weir.yaml, or a group of variables, for documentation.
type Table struct {
	Path      string // apis.NAME.retry, "" for the file
	Fields    []Row
	Relations map[string]any // between fields, as JSON Schema expresses them
}

// Row describes one field of a mapping of weir.yaml, or a variable of the environment, for documentation.
type Row struct {
	Name     string
	Default  string // a value in backticks, or words
	Values   string
	Meaning  string
	Required bool
	Lent     bool   // some vendor's profile sets it, so an api of that vendor may leave it out
	Inner    *Table // the mapping that the field is, or that each of its entries is
	// Shape returns the field's JSON Schema. inner is the schema of Inner.
	Shape func(inner map[string]any) map[string]any
}

// Table describes the section. path is that of its mapping. lent reports whether a vendor's profile may set the field
// at a path.
func (s Section) Table(path string, lent func(path string) bool) Table {
	d := Table{Path: path, Relations: s.Relations}
	for _, fd := range s.Fields {
		f := Row{
			Name: fd.Name, Default: fd.Otherwise, Values: fd.Is.Words, Meaning: fd.Means, Required: fd.Needs != "",
			Lent: lent(under(path, fd.Name)), Shape: fd.Is.Shape,
		}
		switch {
		case f.Required:
			f.Default = "required"
		case f.Default == "" && fd.Or != "":
			f.Default = "`" + fd.Or + "`"
		}
		if fd.Is.Inner != nil {
			inner := fd.Is.Inner().Table(under(under(path, fd.Name), fd.Is.below), lent)
			f.Inner = &inner
		}
		d.Fields = append(d.Fields, f)
	}
	return d
}
