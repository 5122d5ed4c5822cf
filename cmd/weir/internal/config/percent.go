package config

import (
	"fmt"
	"strings"
)

// percentIn reads a whole percentage from 0 to most: 10%. Only 0 needs no sign.
func percentIn(most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		fix := fmt.Sprintf("write a whole number from 0%% to %d%%", most)
		if text == "0" {
			return 0, nil
		}
		number, found := strings.CutSuffix(text, "%")
		n, ok := parseDecimal(strings.TrimSpace(number))
		switch {
		case ok && !found:
			return 0, refuse(fix, "%s has no %% sign", quote(text))
		case !ok || n.scale > 0:
			return 0, refuse(fix, "%s is not a whole percentage", quote(text))
		case n.digits > most:
			return 0, refuse(fix, "%s is out of range", quote(text))
		}
		return n.digits, nil
	}
}
