package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON Schema, or a part of one.
type object = map[string]any

// of is a type of single values: how a file has them, and how tables and JSON Schema describe them.
type of[T any] struct {
	parse  func(string) (T, error)
	show   func(T) string
	words  string
	schema object
}

// but returns the type with another parser and other words, for other limits on the same values.
func (t of[T]) but(words string, parse func(string) (T, error)) of[T] {
	t.words, t.parse = words, parse
	return t
}

// kind is the type of a field, bound to the place of its value.
type kind struct {
	words string
	// shape returns the JSON Schema of the field. inner is the schema of the mapping inside, if there is one.
	shape func(inner object) object
	// parse reads a single value from a text. It is nil for lists and mappings.
	parse func(text string) error
	// read reads the value at v. If v has no node, the file lacks the field, and read sets the default from or.
	read func(v value, or string) texts
	// show returns the value as a text, "" for none. It is nil if read returns the texts.
	show func() string
	// inner returns the mapping inside, for descriptions. below follows the field's name in the path of that mapping.
	inner func() section
	below string
}

// one returns the kind of a single value.
func one[T any](at *T, t of[T]) kind {
	parse := func(text string) error {
		got, err := t.parse(text)
		if err == nil {
			*at = got
		}
		return err
	}
	return kind{
		words: t.words, shape: func(object) object { return t.schema }, show: func() string { return t.show(*at) }, parse: parse,
		read: func(v value, or string) texts {
			text, ok := or, or != ""
			if v.node != nil {
				text, ok = v.scalar()
			}
			if !ok {
				return nil
			}
			if err := parse(text); err != nil {
				v.failWith(err)
			}
			return nil
		},
	}
}

// many returns the kind of a list of at most most different values. t has the words of the list, and parses, shows and
// describes one item.
func many[T comparable](at *[]T, most int, t of[T]) kind {
	return kind{
		words: t.words, shape: func(object) object { return list(t.schema, most) },
		show: func() string {
			shown := make([]string, len(*at))
			for i, item := range *at {
				shown[i] = t.show(item)
			}
			return strings.Join(shown, ", ")
		},
		read: func(v value, or string) texts {
			*at = nil
			if v.node == nil {
				for word := range strings.SplitSeq(strings.Trim(or, "[]"), ", ") {
					if item, err := t.parse(word); or != "" && err == nil {
						*at = append(*at, item)
					}
				}
				return nil
			}
			items := v.list(most)
			parsed := make([]T, 0, len(items))
			for _, item := range items {
				text, ok := item.scalar()
				if !ok {
					continue
				}
				got, err := t.parse(text)
				switch {
				case err != nil:
					item.failWith(err)
				case slices.Contains(parsed, got):
					item.fail(quote(text)+" stands twice", "remove one of them")
				default:
					parsed = append(parsed, got)
				}
			}
			*at = parsed
			return nil
		},
	}
}

// mapping returns the kind of a mapping that always exists. If the file lacks it, its fields have their defaults.
func mapping(s func() section) kind {
	return kind{
		words: "a mapping, below", shape: func(inner object) object { return inner }, inner: s,
		read: func(v value, _ string) texts {
			all, _ := s().read(v)
			return all
		},
	}
}

// shorthand returns the kind of a mapping that a file may also write as the value of its first field.
func shorthand(s func() section) kind {
	k := mapping(func() section {
		of := s()
		of.short = true
		return of
	})
	first := s().fields[0].is
	k.words = strings.Replace(first.words, " or ", ", ", 1) + ", or a mapping, below"
	k.shape = func(inner object) object { return object{"anyOf": []object{first.shape(nil), inner}} }
	return k
}

// optional returns the kind of a mapping that may be absent. *at is nil if the mapping is absent.
func optional[T any](at **T, s func(*T) section) kind {
	k := mapping(func() section { return s(new(T)) })
	k.read = func(v value, _ string) texts {
		if *at = nil; v.node == nil {
			return nil
		}
		*at = new(T)
		return s(*at).readWhole(v)
	}
	return k
}

// items returns the kind of a list of at most most mappings.
func items[T any](at *[]T, most int, s func(*T) section) kind {
	return kind{
		words: fmt.Sprintf("at most %d, below", most), inner: func() section { return s(new(T)) },
		shape: func(inner object) object { return list(inner, most) },
		read: func(v value, _ string) texts {
			*at = nil
			all := texts{}
			for i, item := range v.list(most) {
				t := new(T)
				of := s(t)
				read, name := of.readWhole(item), "["+strconv.Itoa(i)+"]"
				if of.entryName != nil {
					name = joinPath("", of.entryName())
				}
				all.add(name, read)
				*at = append(*at, *t)
			}
			return all
		},
	}
}

// named returns the kind of a mapping of at most most mappings whose names the user chooses. *at is sorted by name.
// below is the word for the names in descriptions. If it is NAME, a name must fit into subjects.
func named[T any](at *[]T, most int, below string, s func(of *T) section, name func(of *T) *string) kind {
	return kind{
		words: fmt.Sprintf("at most %d, by name", most), inner: func() section { return s(new(T)) }, below: below,
		shape: func(inner object) object {
			names := ".*"
			if below == "NAME" {
				names = namePattern
			}
			return object{
				"type": []string{"object", "null"}, "patternProperties": object{names: inner},
				"additionalProperties": false, "maxProperties": most,
			}
		},
		read: func(v value, _ string) texts {
			*at = nil
			all := texts{}
			entries, _ := v.entries(most)
			for _, e := range entries {
				if _, err := parseName(e.name); err != nil && below == "NAME" {
					e.failWith(err)
				}
				t := new(T)
				*name(t) = e.name
				all.add(joinPath("", e.name), s(t).readWhole(e.value))
				*at = append(*at, *t)
			}
			slices.SortFunc(*at, func(a, b T) int { return strings.Compare(*name(&a), *name(&b)) })
			return all
		},
	}
}

// readWhole reads a mapping that Diff reports in one line if only one configuration has it.
func (s section) readWhole(v value) texts {
	all, whole := s.read(v)
	if all != nil {
		all[""] = text{text: whole, whole: true}
	}
	return all
}
