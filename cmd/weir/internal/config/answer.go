package config

import (
	"fmt"
	"slices"
	"strings"

	"weir/ingest"
)

const (
	// mostUsage bounds the usage counters of an api. Each counter is a series of metrics.
	mostUsage = 16
	placeFix  = "write header:NAME or json:/pointer"
)

// Usage is a counter: a number that weir takes from an api's answers, for reports.
type Usage struct {
	Name string
	From ingest.Source // one place in the answer, or several
}

// answerPlace returns the type of a place in an answer: a header, or a pointer into the body.
func answerPlace() of[ingest.Source] {
	return of[ingest.Source]{
		func(text string) (ingest.Source, error) {
			header, pointer, err := parseSource(text)
			if err == nil && header == "" && pointer == "" {
				err = refuse(placeFix, "%s is no place in a response", quote(text))
			}
			return ingest.Source{Header: header, Pointer: pointer}, err
		},
		func(s ingest.Source) string {
			if !s.IsPlace() {
				return ""
			}
			return formatSource(s)
		}, "`header:NAME` or a pointer into the answer's body", pattern(sourcePattern),
	}
}

// readPlaces reads one place in an answer, or a list of them. ok is false if it reported a problem.
func readPlaces(v value) (s ingest.Source, ok bool) {
	items := []value{v}
	if v.isList() {
		if items = v.list(ingest.MostPlaces); len(items) == 0 {
			if len(v.node.Content) == 0 {
				v.fail("has no place", placeFix)
			}
			return s, false
		}
	}
	ok = true
	for i, item := range items {
		text, read := item.scalar()
		place, err := ingest.Source{}, error(nil)
		if read {
			if place, err = answerPlace().parse(text); err != nil {
				item.failWith(err)
			}
		}
		switch at := (ingest.Place{Header: place.Header, Pointer: place.Pointer}); {
		case !read || err != nil:
			ok = false
		case i == 0:
			s.Header, s.Pointer = at.Header, at.Pointer
		case slices.Contains(slices.Collect(s.Places()), at):
			item.fail(quote(text)+" stands twice", "remove one of them")
			ok = false
		default:
			s.Or[i-1] = at
		}
	}
	return s, ok
}

// settled returns the kind of a term's settle field: where the answer has the term's actual number. Its value is a
// place, a list of places, or the name of a usage counter, whose places it copies.
func settled(at *ingest.Source, usage *[]Usage) kind {
	place := answerPlace()
	return kind{
		words: fmt.Sprintf("`header:NAME`, a pointer into the answer's body, `usage:NAME`, or a list of at most %d places",
			ingest.MostPlaces),
		shape: func(object) object {
			return object{"anyOf": []object{
				pattern(sourcePattern + `|usage:.+`), list(place.schema, ingest.MostPlaces),
			}}
		},
		show: func() string { return place.show(*at) },
		read: func(v value, _ string) texts {
			if *at = (ingest.Source{}); v.node == nil {
				return nil
			}
			name, counter := "", false
			if v.isScalar() {
				name, counter = strings.CutPrefix(v.node.Value, "usage:")
			}
			if !counter {
				*at, _ = readPlaces(v)
				return nil
			}
			var names []string
			for _, u := range *usage {
				if names = append(names, u.Name); u.Name == name {
					*at = u.From
					return nil
				}
			}
			if len(names) == 0 {
				v.fail("the api has no usage counters", "write usage: {"+name+": json:/pointer}, or the pointer here")
			} else {
				v.fail("there is no usage counter "+quote(name), meant(name, names))
			}
			return nil
		},
	}
}

// usage returns the kind of a mapping from names, chosen by the user, to places in the answer.
func usage(at *[]Usage) kind {
	place := answerPlace()
	return kind{
		words: fmt.Sprintf("a mapping of at most %d names to `header:NAME`, a pointer into the answer's body, "+
			"or a list of at most %d of them", mostUsage, ingest.MostPlaces),
		shape: func(object) object {
			return object{
				"type": []string{"object", "null"}, "maxProperties": mostUsage, "additionalProperties": false,
				"patternProperties": object{namePattern: object{"anyOf": []object{
					place.schema, list(place.schema, ingest.MostPlaces),
				}}},
			}
		},
		read: func(v value, _ string) texts {
			*at = nil
			all := texts{}
			entries, _ := v.entries(mostUsage)
			for _, e := range entries {
				if _, err := parseName(e.name); err != nil {
					e.failWith(err)
					continue
				}
				if from, ok := readPlaces(e.value); ok {
					*at = append(*at, Usage{e.name, from})
					all[joinPath("", e.name)] = text{text: formatSource(from), from: e.origin()}
				}
			}
			return all
		},
	}
}
