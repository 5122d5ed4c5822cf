package config

import (
	"math"
	"math/bits"
	"strings"
)

// decimal is an exact number as people write it: digits / 10^scale, without trailing zeros behind the point.
type decimal struct {
	digits int64 // 0 to 10^15-1
	scale  int   // 0 to 9
}

// parseDecimal reads 12, 0.5 or 12.50: digits with at most one point, no sign, exponent or separator. At most 15 digits,
// 9 of them behind the point.
func parseDecimal(text string) (decimal, bool) {
	whole, fraction, point := strings.Cut(text, ".")
	if whole == "" || point && fraction == "" {
		return decimal{}, false
	}
	fraction = strings.TrimRight(fraction, "0")
	whole = strings.TrimLeft(whole, "0")
	if len(whole)+len(fraction) > 15 || len(fraction) > 9 {
		return decimal{}, false
	}
	var digits int64
	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' {
			return decimal{}, false
		}
		digits = digits*10 + int64(c-'0')
	}
	return decimal{digits: digits, scale: len(fraction)}, true
}

// times returns the number multiplied by unit, and whether that is a whole number an int64 can hold.
func (d decimal) times(unit int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(d.digits), uint64(unit))
	divisor := uint64(powerOfTen(d.scale))
	if hi >= divisor {
		return 0, false
	}
	quotient, rest := bits.Div64(hi, lo, divisor)
	if rest != 0 || quotient > math.MaxInt64 {
		return 0, false
	}
	return int64(quotient), true
}

func powerOfTen(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}

func greatestCommonDivisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// leadingNumber splits a text behind its digits and points: "300/3h" has the number "300".
func leadingNumber(text string) (number, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}
