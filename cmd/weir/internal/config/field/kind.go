package field

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
)

// Object is a JSON Schema, or a part of one.
type Object = map[string]any

// Type is a type of single values: how a file has them, and how tables and JSON Schema describe them.
type Type[T any] struct {
	Parse  func(string) (T, error)
	Show   func(T) string
	Words  string
	Schema Object
}

// But returns the type with another parser and other words, for other limits on the same values.
func (t Type[T]) But(words string, parse func(string) (T, error)) Type[T] {
	t.Words, t.Parse = words, parse
	return t
}

// Kind is the type of a field, bound to the place of its value.
type Kind struct {
	Words string
	// Shape returns the JSON Schema of the field. inner is the schema of the mapping inside, if there is one.
	Shape func(inner Object) Object
	// Parse reads a single value from a text. It is nil for lists and mappings.
	Parse func(text string) error
	// Read reads the value at v. If v has no node, the file lacks the field, and Read sets the default from or.
	Read func(v Value, or string) Texts
	// Show returns the value as a text, "" for none. It is nil if Read returns the texts.
	Show func() string
	// Inner returns the mapping inside, for descriptions. below follows the field's name in the path of that mapping.
	Inner func() Section
	below string
}

// One returns the kind of a single value.
func One[T any](at *T, t Type[T]) Kind {
	parse := func(text string) error {
		got, err := t.Parse(text)
		if err == nil {
			*at = got
		}
		return err
	}
	return Kind{
		Words: t.Words,
		Shape: func(Object) Object { return t.Schema },
		Show:  func() string { return t.Show(*at) },
		Parse: parse,
		Read: func(v Value, or string) Texts {
			text, ok := or, or != ""
			if v.Node != nil {
				text, ok = v.Scalar()
			}
			if !ok {
				return nil
			}
			if err := parse(text); err != nil {
				v.FailWith(err)
			}
			return nil
		},
	}
}

// Many returns the kind of a list of at most most different values. t has the words of the list, and parses, shows and
// describes one item.
func Many[T comparable](at *[]T, most int, t Type[T]) Kind {
	return Kind{
		Words: t.Words, Shape: func(Object) Object { return List(t.Schema, most) },
		Show: func() string {
			shown := make([]string, len(*at))
			for i, item := range *at {
				shown[i] = t.Show(item)
			}
			return strings.Join(shown, ", ")
		},
		Read: func(v Value, or string) Texts {
			*at = nil
			if v.Node == nil {
				for word := range strings.SplitSeq(strings.Trim(or, "[]"), ", ") {
					if item, err := t.Parse(word); or != "" && err == nil {
						*at = append(*at, item)
					}
				}
				return nil
			}
			items := v.List(most)
			parsed := make([]T, 0, len(items))
			for _, item := range items {
				text, ok := item.Scalar()
				if !ok {
					continue
				}
				got, err := t.Parse(text)
				switch {
				case err != nil:
					item.FailWith(err)
				case slices.Contains(parsed, got):
					item.Fail(problem.Quote(text)+" stands twice", "remove one of them")
				default:
					parsed = append(parsed, got)
				}
			}
			*at = parsed
			return nil
		},
	}
}

// Mapping returns the kind of a mapping that always exists. If the file lacks it, its fields have their defaults.
func Mapping(s func() Section) Kind {
	return Kind{
		Words: "a mapping, below", Shape: func(inner Object) Object { return inner }, Inner: s,
		Read: func(v Value, _ string) Texts {
			all, _ := s().Read(v)
			return all
		},
	}
}

// Shorthand returns the kind of a mapping that a file may also write as the value of its first field.
func Shorthand(s func() Section) Kind {
	k := Mapping(func() Section {
		of := s()
		of.short = true
		return of
	})
	first := s().Fields[0].Is
	k.Words = strings.Replace(first.Words, " or ", ", ", 1) + ", or a mapping, below"
	k.Shape = func(inner Object) Object { return Object{"anyOf": []Object{first.Shape(nil), inner}} }
	return k
}

// Optional returns the kind of a mapping that may be absent. *at is nil if the mapping is absent.
func Optional[T any](at **T, s func(*T) Section) Kind {
	k := Mapping(func() Section { return s(new(T)) })
	k.Read = func(v Value, _ string) Texts {
		if *at = nil; v.Node == nil {
			return nil
		}
		*at = new(T)
		return s(*at).readWhole(v)
	}
	return k
}

// Items returns the kind of a list of at most most mappings.
func Items[T any](at *[]T, most int, s func(*T) Section) Kind {
	return Kind{
		Words: fmt.Sprintf("at most %d, below", most), Inner: func() Section { return s(new(T)) },
		Shape: func(inner Object) Object { return List(inner, most) },
		Read: func(v Value, _ string) Texts {
			*at = nil
			all := Texts{}
			for i, item := range v.List(most) {
				t := new(T)
				of := s(t)
				read, name := of.readWhole(item), "["+strconv.Itoa(i)+"]"
				if of.EntryName != nil {
					name = JoinPath("", of.EntryName())
				}
				all.add(name, read)
				*at = append(*at, *t)
			}
			return all
		},
	}
}

// Named returns the kind of a mapping of at most most mappings whose names the user chooses. *at is sorted by name.
// below is the word for the names in descriptions. If it is NAME, a name must fit into subjects.
func Named[T any](at *[]T, most int, below string, s func(of *T) Section, name func(of *T) *string) Kind {
	return Kind{
		Words: fmt.Sprintf("at most %d, by name", most), Inner: func() Section { return s(new(T)) }, below: below,
		Shape: func(inner Object) Object {
			names := ".*"
			if below == "NAME" {
				names = NamePattern
			}
			return Object{
				"type": []string{"object", "null"}, "patternProperties": Object{names: inner},
				"additionalProperties": false, "maxProperties": most,
			}
		},
		Read: func(v Value, _ string) Texts {
			*at = nil
			all := Texts{}
			entries, _ := v.Entries(most)
			for _, e := range entries {
				if _, err := grammar.ParseName(e.Name); err != nil && below == "NAME" {
					e.FailWith(err)
				}
				t := new(T)
				*name(t) = e.Name
				all.add(JoinPath("", e.Name), s(t).readWhole(e.Value))
				*at = append(*at, *t)
			}
			slices.SortFunc(*at, func(a, b T) int { return strings.Compare(*name(&a), *name(&b)) })
			return all
		},
	}
}

// readWhole reads a mapping that Diff reports in one line if only one configuration has it.
func (s Section) readWhole(v Value) Texts {
	all, whole := s.Read(v)
	if all != nil {
		all[""] = Text{Text: whole, Whole: true}
	}
	return all
}
