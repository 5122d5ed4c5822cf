package config

import (
	"fmt"
	"slices"
	"strconv"
)

// fields is a mapping whose names are known.
type fields struct {
	value
	byName map[string]value
}

// fields reads v as a mapping with these names; any other name is a problem.
func (v value) fields(names ...string) (fields, bool) {
	entries, ok := v.entries(maxVisits)
	f := fields{value: v, byName: make(map[string]value, len(entries))}
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

// place returns the field's value for a message, or the mapping itself when the field is absent.
func (f fields) place(name string) value {
	if v, ok := f.byName[name]; ok {
		return v
	}
	return f.value
}

// require reports a problem if the field is absent; fix shows an example.
func (f fields) require(name, fix string) {
	if !f.has(name) {
		missing := f.value
		missing.path = joinPath(f.path, name)
		missing.fail("is missing", fix)
	}
}

// ignored reports a problem for each present field that has no effect here; why follows their name.
func (f fields) ignored(why string, names ...string) {
	for _, name := range names {
		if v, ok := f.byName[name]; ok {
			v.fail("means nothing "+why, "remove it")
		}
	}
}

// read returns the parsed field, or fallback if it is absent or refused. It reports a refusal.
func read[T any](f fields, name string, fallback T, parse func(string) (T, error)) T {
	if v, ok := f.byName[name]; ok {
		return readValue(v, fallback, parse)
	}
	return fallback
}

// readValue is read for a value that was found already.
func readValue[T any](v value, fallback T, parse func(string) (T, error)) T {
	text, ok := v.scalar()
	if !ok {
		return fallback
	}
	got, err := parse(text)
	if err != nil {
		v.failWith(err)
		return fallback
	}
	return got
}

// readList returns the parsed items of a list, nil if the field is absent. A repeated item is a problem.
func readList[T comparable](f fields, name string, most int, parse func(string) (T, error)) []T {
	v, ok := f.byName[name]
	if !ok {
		return nil
	}
	items := v.list(most)
	parsed := make([]T, 0, len(items))
	for _, item := range items {
		text, ok := item.scalar()
		if !ok {
			continue
		}
		got, err := parse(text)
		switch {
		case err != nil:
			item.failWith(err)
		case slices.Contains(parsed, got):
			item.fail(quote(text)+" stands twice", "remove one of them")
		default:
			parsed = append(parsed, got)
		}
	}
	return parsed
}

// wholeIn reads a whole number from least to most, in digits only.
func wholeIn(least, most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		fix := fmt.Sprintf("write a whole number from %d to %d", least, most)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || text[0] == '+' {
			return 0, refuse(fix, "%s is not a whole number", quote(text))
		}
		if n < least || n > most {
			return 0, refuse(fix, "%d is out of range", n)
		}
		return n, nil
	}
}

// oneOf reads one of a few words.
func oneOf[T ~string](choices ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if slices.Contains(choices, T(text)) {
			return T(text), nil
		}
		names := make([]string, len(choices))
		for i, c := range choices {
			names[i] = string(c)
		}
		return "", refuse(meant(text, names), "%s is unknown", quote(text))
	}
}

// yesOrNo reads true or false.
func yesOrNo(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, refuse("write true or false", "%s is neither true nor false", quote(text))
	}
}
