package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON Schema, or a part of one.
type object = map[string]any

// of is a type of single values: how a file writes them, and how tables and JSON Schema describe them.
type of[T any] struct {
	parse  func(string) (T, error)
	show   func(T) string
	words  string
	schema object
}

// but returns the type with other limits on the same values.
func (t of[T]) but(words string, parse func(string) (T, error)) of[T] {
	t.words, t.parse = words, parse
	return t
}

// kind is the type of a field and the place of its value.
type kind struct {
	words string
	// shape returns the JSON Schema, given that of the mapping inside, if there is one.
	shape func(inner object) object
	// parse reads a single value from a text. It is nil for any other.
	parse func(text string) error
	// read reads the value at v. If the file has none, it sets the default or, and v has no node.
	read func(v value, or string) texts
	// show returns the value as a text, "" for none. It is nil if read returns texts.
	show func() string
	// inner returns the mapping inside, for a description of it; below is what its path has after the field's.
	inner func() section
	below string
}

// one is a single value.
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

// many is a list of at most most values, none of them twice. t describes the list, and its schema an item.
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

// mapping is a mapping that is there even if the file does not have it: with the defaults of its fields.
func mapping(s func() section) kind {
	return kind{
		words: "a mapping, below", shape: func(inner object) object { return inner }, inner: s,
		read: func(v value, _ string) texts {
			all, _ := s().read(v)
			return all
		},
	}
}

// shorthand is a mapping that may be written as the value of its first field alone.
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

// optional is a mapping that may be absent: nil then.
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

// items is a list of at most most mappings.
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

// named is a mapping of at most most mappings whose names the user chooses, sorted by them. What the names are is called
// below; a NAME has only letters that may stand in subjects.
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

// readWhole reads a mapping. If it is new or gone, the difference of two configurations says so in one line.
func (s section) readWhole(v value) texts {
	all, whole := s.read(v)
	if all != nil {
		all[""] = text{text: whole, whole: true}
	}
	return all
}
