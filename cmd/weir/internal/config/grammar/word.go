package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config/problem"
)

// WholeIn returns a parser of whole numbers from least to most. It accepts digits and a minus sign only.
func WholeIn(least, most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		fix := fmt.Sprintf("write a whole number from %d to %d", least, most)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || text[0] == '+' {
			return 0, problem.Refuse(fix, "%s is not a whole number", problem.Quote(text))
		}
		if n < least || n > most {
			return 0, problem.Refuse(fix, "%d is out of range", n)
		}
		return n, nil
	}
}

// OneOf returns a parser that accepts only choices.
func OneOf[T ~string](choices ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if slices.Contains(choices, T(text)) {
			return T(text), nil
		}
		names := make([]string, len(choices))
		for i, c := range choices {
			names[i] = string(c)
		}
		return "", problem.Refuse(problem.Meant(text, names), "%s is unknown", problem.Quote(text))
	}
}

// YesOrNo reads true or false.
func YesOrNo(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, problem.Refuse("write true or false", "%s is neither true nor false", problem.Quote(text))
	}
}

// ParseName reads the name of an api or a limit. The name becomes part of subjects, stream names and Redis keys.
func ParseName(text string) (string, error) {
	if text == "" || len(text) > 64 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return "", problem.Refuse("write a-z, 0-9, '-' and '_' only, at most 64", "%s cannot be a name", problem.Quote(text))
	}
	return text, nil
}
