package config

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
)

// Patterns of JSON Schema. They match everything that the parsers accept.
const (
	numberPattern   = `[0-9]+(\.[0-9]*)?|\.[0-9]+`
	unitPattern     = `(ms|s|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)`
	durationPattern = `((` + numberPattern + `) *` + unitPattern + ` *)+`
	sourcePattern   = `header:.+|json:.*`
	namePattern     = `^[a-z0-9_-]{1,64}$`
)

var anyText = object{"type": "string"}

func pattern(p string) object { return object{"type": "string", "pattern": "^(" + p + ")$"} }

// orNumber returns the schema of a text that matches p. It also accepts what YAML reads as a number.
func orNumber(p string) object {
	return object{"type": []string{"string", "number"}, "pattern": "^(" + p + ")$"}
}

// orZero returns the schema of a text that matches p. It also accepts the number 0, which needs no unit.
func orZero(p string) object { return object{"anyOf": []object{pattern(p), {"const": 0}}} }

func list(item object, most int) object {
	return object{"type": []string{"array", "null"}, "items": item, "maxItems": most}
}

// wholeSchema returns the schema of a whole number, which may be in quotes.
func wholeSchema(least, most int64) object {
	return object{"type": []string{"integer", "string"}, "minimum": least, "maximum": most, "pattern": "^[0-9]+$"}
}

func same(text string) string { return text }

// either joins words as a sentence does: a, b or c.
func either(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func duration(least, most time.Duration) of[time.Duration] {
	return of[time.Duration]{
		durationIn(least, most), FormatDuration,
		"a duration from " + FormatDuration(least) + " to " + FormatDuration(most), orZero("0|" + durationPattern),
	}
}

func size(least, most int64) of[int64] {
	return of[int64]{
		sizeIn(least, most), FormatSize, "a size from " + FormatSize(least) + " to " + FormatSize(most),
		orNumber(`(` + numberPattern + `) *([kKMGT]i?B|B)?`),
	}
}

func whole[T int | int64](least, most T) of[T] {
	return of[T]{
		func(text string) (T, error) {
			n, err := wholeIn(int64(least), int64(most))(text)
			return T(n), err
		},
		func(n T) string { return strconv.FormatInt(int64(n), 10) }, fmt.Sprintf("%d to %d", least, most), wholeSchema(int64(least), int64(most)),
	}
}

func percent(least, most int64) of[int64] {
	return of[int64]{
		percentIn(most), func(n int64) string { return strconv.FormatInt(n, 10) + "%" },
		fmt.Sprintf("%d%% to %d%%", least, most), orZero(`0|[0-9]+ *%`),
	}
}

// word returns the type of a field whose value is one of choices.
func word[T ~string](choices ...T) of[T] {
	quoted := make([]string, len(choices))
	for i, c := range choices {
		quoted[i] = "`" + string(c) + "`"
	}
	return of[T]{oneOf(choices...), func(w T) string { return string(w) }, either(quoted), object{"enum": choices}}
}

// prefixed returns the type with words put before its description.
func (t of[T]) prefixed(words string) of[T] {
	t.words = words + t.words
	return t
}

// orEmpty returns the type for values whose zero value means "none", which it shows as "".
func orEmpty[T comparable](t of[T]) of[T] {
	show := t.show
	t.show = func(v T) string {
		var zero T
		if v == zero {
			return ""
		}
		return show(v)
	}
	return t
}

// orNone is orEmpty for a field whose default is not the zero value. It shows the zero value as "none", so that
// differences name it.
func orNone[T comparable](t of[T]) of[T] {
	t = orEmpty(t)
	show := t.show
	t.show = func(v T) string { return cmp.Or(show(v), "none") }
	return t
}

func yes() of[bool] {
	return of[bool]{yesOrNo, strconv.FormatBool, "`true` or `false`", object{"type": "boolean"}}
}

func rate() of[bucket.Rate] {
	return of[bucket.Rate]{
		ParseRate, FormatRate, "a rate",
		pattern(`(` + numberPattern + `) */ *((` + unitPattern + `)|` + durationPattern + `)`),
	}
}

func money() of[Money] {
	return of[Money]{ParseMoney, Money.String, "money", orNumber(numberPattern)}
}

// free returns the type of a text that parse reads. words describes its values.
func free(words string, parse func(string) (string, error)) of[string] {
	return of[string]{parse, same, words, anyText}
}

func address(words string, parse func(string) (*url.URL, error)) of[*url.URL] {
	return of[*url.URL]{parse, func(u *url.URL) string {
		if u == nil {
			return ""
		}
		return u.String()
	}, words, object{"type": "string", "pattern": "^https?://"}}
}

// wholeIn returns a parser of whole numbers from least to most. It accepts digits and a minus sign only.
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

// oneOf returns a parser that accepts only choices.
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
