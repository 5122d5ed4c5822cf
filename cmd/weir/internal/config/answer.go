package config

import (
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
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
func answerPlace() field.Type[ingest.Source] {
	return field.Type[ingest.Source]{
		Parse: func(text string) (ingest.Source, error) {
			header, pointer, err := parseSource(text)
			if err == nil && header == "" && pointer == "" {
				err = problem.Refuse(placeFix, "%s is no place in a response", problem.Quote(text))
			}
			return ingest.Source{Header: header, Pointer: pointer}, err
		},
		Show: func(s ingest.Source) string {
			if !s.IsPlace() {
				return ""
			}
			return formatSource(s)
		}, Words: "`header:NAME` or a pointer into the answer's body", Schema: field.Pattern(sourcePattern),
	}
}

// readPlaces reads one place in an answer, or a list of them. ok is false if it reported a problem.
func readPlaces(v field.Value) (s ingest.Source, ok bool) {
	items := []field.Value{v}
	if v.IsList() {
		if items = v.List(ingest.MostPlaces); len(items) == 0 {
			if len(v.Node.Content) == 0 {
				v.Fail("has no place", placeFix)
			}
			return s, false
		}
	}
	ok = true
	for i, item := range items {
		text, read := item.Scalar()
		place, err := ingest.Source{}, error(nil)
		if read {
			if place, err = answerPlace().Parse(text); err != nil {
				item.FailWith(err)
			}
		}
		switch at := (ingest.Place{Header: place.Header, Pointer: place.Pointer}); {
		case !read || err != nil:
			ok = false
		case i == 0:
			s.Header, s.Pointer = at.Header, at.Pointer
		case slices.Contains(slices.Collect(s.Places()), at):
			item.Fail(problem.Quote(text)+" stands twice", "remove one of them")
			ok = false
		default:
			s.Or[i-1] = at
		}
	}
	return s, ok
}

// settled returns the kind of a term's settle field: where the answer has the term's actual number. Its value is a
// place, a list of places, or the name of a usage counter, whose places it copies.
func settled(at *ingest.Source, usage *[]Usage) field.Kind {
	place := answerPlace()
	return field.Kind{
		Words: fmt.Sprintf("`header:NAME`, a pointer into the answer's body, `usage:NAME`, or a list of at most %d places",
			ingest.MostPlaces),
		Shape: func(field.Object) field.Object {
			return field.Object{"anyOf": []field.Object{
				field.Pattern(sourcePattern + `|usage:.+`), field.List(place.Schema, ingest.MostPlaces),
			}}
		},
		Show: func() string { return place.Show(*at) },
		Read: func(v field.Value, _ string) field.Texts {
			if *at = (ingest.Source{}); v.Node == nil {
				return nil
			}
			name, counter := "", false
			if v.IsScalar() {
				name, counter = strings.CutPrefix(v.Node.Value, "usage:")
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
				v.Fail("the api has no usage counters", "write usage: {"+name+": json:/pointer}, or the pointer here")
			} else {
				v.Fail("there is no usage counter "+problem.Quote(name), problem.Meant(name, names))
			}
			return nil
		},
	}
}

// usage returns the kind of a mapping from names, chosen by the user, to places in the answer.
func usage(at *[]Usage) field.Kind {
	place := answerPlace()
	return field.Kind{
		Words: fmt.Sprintf("a mapping of at most %d names to `header:NAME`, a pointer into the answer's body, "+
			"or a list of at most %d of them", mostUsage, ingest.MostPlaces),
		Shape: func(field.Object) field.Object {
			return field.Object{
				"type": []string{"object", "null"}, "maxProperties": mostUsage, "additionalProperties": false,
				"patternProperties": field.Object{field.NamePattern: field.Object{"anyOf": []field.Object{
					place.Schema, field.List(place.Schema, ingest.MostPlaces),
				}}},
			}
		},
		Read: func(v field.Value, _ string) field.Texts {
			*at = nil
			all := field.Texts{}
			entries, _ := v.Entries(mostUsage)
			for _, e := range entries {
				if _, err := grammar.ParseName(e.Name); err != nil {
					e.FailWith(err)
					continue
				}
				if from, ok := readPlaces(e.Value); ok {
					*at = append(*at, Usage{e.Name, from})
					all[field.JoinPath("", e.Name)] = field.Text{Text: formatSource(from), From: e.Origin()}
				}
			}
			return all
		},
	}
}
