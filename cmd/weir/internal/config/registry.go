package config

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
			Name: fd.name, Default: fd.otherwise, Values: fd.is.words, Meaning: fd.means, Required: fd.needs != "", Shape: fd.is.shape,
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
