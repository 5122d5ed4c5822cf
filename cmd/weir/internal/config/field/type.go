package field

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/grammar"
)

// Patterns of JSON Schema. They match everything that the parsers accept.
const (
	NumberPattern   = `[0-9]+(\.[0-9]*)?|\.[0-9]+`
	UnitPattern     = `(ms|s|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)`
	DurationPattern = `((` + NumberPattern + `) *` + UnitPattern + ` *)+`
	NamePattern     = `^[a-z0-9_-]{1,64}$`
)

// AnyText is the schema of a text.
var AnyText = Object{"type": "string"}

// Pattern returns the schema of a text that matches p.
func Pattern(p string) Object { return Object{"type": "string", "pattern": "^(" + p + ")$"} }

// OrNumber returns the schema of a text that matches p. It also accepts what YAML reads as a number.
func OrNumber(p string) Object {
	return Object{"type": []string{"string", "number"}, "pattern": "^(" + p + ")$"}
}

// orZero returns the schema of a text that matches p. It also accepts the number 0, which needs no unit.
func orZero(p string) Object { return Object{"anyOf": []Object{Pattern(p), {"const": 0}}} }

// List returns the schema of a list of at most most items.
func List(item Object, most int) Object {
	return Object{"type": []string{"array", "null"}, "items": item, "maxItems": most}
}

// WholeSchema returns the schema of a whole number, which may be in quotes.
func WholeSchema(least, most int64) Object {
	return Object{"type": []string{"integer", "string"}, "minimum": least, "maximum": most, "pattern": "^[0-9]+$"}
}

// Same returns the text as it is.
func Same(text string) string { return text }

// Either joins words as a sentence does: a, b or c.
func Either(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Duration returns the type of durations from least to most.
func Duration(least, most time.Duration) Type[time.Duration] {
	return Type[time.Duration]{
		grammar.DurationIn(least, most), grammar.FormatDuration,
		"a duration from " + grammar.FormatDuration(least) + " to " + grammar.FormatDuration(most),
		orZero("0|" + DurationPattern),
	}
}

// Size returns the type of numbers of bytes from least to most.
func Size(least, most int64) Type[int64] {
	return Type[int64]{
		grammar.SizeIn(least, most), grammar.FormatSize,
		"a size from " + grammar.FormatSize(least) + " to " + grammar.FormatSize(most),
		OrNumber(`(` + NumberPattern + `) *([kKMGT]i?B|B)?`),
	}
}

// Whole returns the type of whole numbers from least to most.
func Whole[T int | int64](least, most T) Type[T] {
	return Type[T]{
		func(text string) (T, error) {
			n, err := grammar.WholeIn(int64(least), int64(most))(text)
			return T(n), err
		},
		func(n T) string { return strconv.FormatInt(int64(n), 10) }, fmt.Sprintf("%d to %d", least, most),
		WholeSchema(int64(least), int64(most)),
	}
}

// Percent returns the type of whole percentages from least to most. Its parser refuses only those above most.
func Percent(least, most int64) Type[int64] {
	return Type[int64]{
		grammar.PercentIn(most), func(n int64) string { return strconv.FormatInt(n, 10) + "%" },
		fmt.Sprintf("%d%% to %d%%", least, most), orZero(`0|[0-9]+ *%`),
	}
}

// Word returns the type of a field whose value is one of choices.
func Word[T ~string](choices ...T) Type[T] {
	quoted := make([]string, len(choices))
	for i, c := range choices {
		quoted[i] = "`" + string(c) + "`"
	}
	return Type[T]{
		grammar.OneOf(choices...),
		func(w T) string { return string(w) },
		Either(quoted),
		Object{"enum": choices},
	}
}

// Prefixed returns the type with words put before its description.
func (t Type[T]) Prefixed(words string) Type[T] {
	t.Words = words + t.Words
	return t
}

// OrEmpty returns the type for values whose zero value means "none", which it shows as "".
func OrEmpty[T comparable](t Type[T]) Type[T] {
	show := t.Show
	t.Show = func(v T) string {
		var zero T
		if v == zero {
			return ""
		}
		return show(v)
	}
	return t
}

// OrNone is OrEmpty for a field whose default is not the zero value. It shows the zero value as "none", so that
// differences name it.
func OrNone[T comparable](t Type[T]) Type[T] {
	t = OrEmpty(t)
	show := t.Show
	t.Show = func(v T) string { return cmp.Or(show(v), "none") }
	return t
}

// Yes returns the type of true and false.
func Yes() Type[bool] {
	return Type[bool]{grammar.YesOrNo, strconv.FormatBool, "`true` or `false`", Object{"type": "boolean"}}
}

// Rate returns the type of rates such as 10/s.
func Rate() Type[bucket.Rate] {
	return Type[bucket.Rate]{
		grammar.ParseRate, grammar.FormatRate, "a rate",
		Pattern(`(` + NumberPattern + `) */ *((` + UnitPattern + `)|` + DurationPattern + `)`),
	}
}

// Money returns the type of amounts of money.
func Money() Type[grammar.Money] {
	return Type[grammar.Money]{grammar.ParseMoney, grammar.Money.String, "money", OrNumber(NumberPattern)}
}

// Free returns the type of a text that parse reads. words describes its values.
func Free(words string, parse func(string) (string, error)) Type[string] {
	return Type[string]{parse, Same, words, AnyText}
}

// Address returns the type of an http address that parse reads. words describes it.
func Address(words string, parse func(string) (*url.URL, error)) Type[*url.URL] {
	return Type[*url.URL]{parse, func(u *url.URL) string {
		if u == nil {
			return ""
		}
		return u.String()
	}, words, Object{"type": "string", "pattern": "^https?://"}}
}
