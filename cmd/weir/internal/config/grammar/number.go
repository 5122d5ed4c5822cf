// Package grammar reads and writes values as people write them in weir.yaml and in variables: numbers, money, sizes,
// durations, rates, quotas, names, and hosts with ports. A parser's error says what is wrong with the text and what to
// write; problem.Of makes a problem of it.
package grammar

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config/problem"
)

// Decimal is an exact number, digits / 10^scale, without trailing zeros after the point.
type Decimal struct {
	digits int64 // 0 to 10^15-1
	scale  int   // 0 to 9
}

// ParseDecimal reads 12, 0.5 or 12.50: at most 15 digits, at most 9 of them after the point. It refuses a sign, an
// exponent and separators.
func ParseDecimal(text string) (Decimal, bool) {
	whole, fraction, point := strings.Cut(text, ".")
	if whole == "" || point && fraction == "" {
		return Decimal{}, false
	}
	fraction = strings.TrimRight(fraction, "0")
	whole = strings.TrimLeft(whole, "0")
	if len(whole)+len(fraction) > 15 || len(fraction) > 9 {
		return Decimal{}, false
	}
	var digits int64
	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' {
			return Decimal{}, false
		}
		digits = digits*10 + int64(c-'0')
	}
	return Decimal{digits: digits, scale: len(fraction)}, true
}

// Times returns d × unit. The bool is false if the product is not a whole number or does not fit in an int64.
func (d Decimal) Times(unit int64) (int64, bool) {
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

// leadingNumber splits a text after its leading digits and points: "300/3h" has the number "300".
func leadingNumber(text string) (number, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}

// Money is an amount in millionths of a currency unit, so that sums are exact. weir knows no currencies: all amounts of
// one file are in the same one.
type Money int64

const (
	// Millionths is a currency unit in millionths, in which Money counts.
	Millionths = 1_000_000
	// mostMoney is a thousand million units: 10^15 millionths, which Redis scripts still count exactly.
	mostMoney Money = 1_000_000_000 * Millionths
)

// ParseMoney reads an amount of 0 to 1,000,000,000 with at most six digits after the point: 0.40, 200, 0.000125.
func ParseMoney(text string) (Money, error) {
	const fix = "write a plain amount such as 0.40"
	if strings.HasPrefix(text, "-") {
		return 0, problem.Refuse(fix, "%s is negative", problem.Quote(text))
	}
	n, ok := ParseDecimal(text)
	if !ok {
		return 0, problem.Refuse(fix+", without currency or separators", "%s is not an amount of money", problem.Quote(text))
	}
	amount, ok := n.Times(Millionths)
	if !ok {
		return 0,
			problem.Refuse("write at most six digits behind the point", "%s is finer than a millionth", problem.Quote(text))
	}
	if Money(amount) > mostMoney {
		return 0, problem.Refuse("write at most "+mostMoney.String(), "%s is too much", problem.Quote(text))
	}
	return Money(amount), nil
}

// String writes the amount with at least two and at most six digits after the point: 0.40, 200.00, 0.000125.
func (m Money) String() string {
	text := fmt.Sprintf("%d.%06d", m/Millionths, m%Millionths)
	for range 4 {
		text = strings.TrimSuffix(text, "0")
	}
	return text
}

// PercentIn returns a parser of whole percentages from 0 to most: 10%. Only 0 needs no percent sign.
func PercentIn(most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		fix := fmt.Sprintf("write a whole number from 0%% to %d%%", most)
		if text == "0" {
			return 0, nil
		}
		number, found := strings.CutSuffix(text, "%")
		n, ok := ParseDecimal(strings.TrimSpace(number))
		switch {
		case ok && !found:
			return 0, problem.Refuse(fix, "%s has no %% sign", problem.Quote(text))
		case !ok || n.scale > 0:
			return 0, problem.Refuse(fix, "%s is not a whole percentage", problem.Quote(text))
		case n.digits > most:
			return 0, problem.Refuse(fix, "%s is out of range", problem.Quote(text))
		}
		return n.digits, nil
	}
}

const sizeFix = "write 64KiB, 10GiB or a number of bytes"

// sizeUnit returns the number of bytes in a unit, or 0 if there is no such unit.
func sizeUnit(name string) int64 {
	switch name {
	case "", "B":
		return 1
	case "KiB":
		return 1 << 10
	case "MiB":
		return 1 << 20
	case "GiB":
		return 1 << 30
	case "TiB":
		return 1 << 40
	case "kB", "KB":
		return 1e3
	case "MB":
		return 1e6
	case "GB":
		return 1e9
	case "TB":
		return 1e12
	default:
		return 0
	}
}

// ParseSize reads a number of bytes: 512, 64KiB, 1.5MiB, 10GiB, or the decimal units KB, MB, GB.
func ParseSize(text string) (int64, error) {
	if strings.HasPrefix(text, "-") {
		return 0, problem.Refuse(sizeFix, "%s is negative", problem.Quote(text))
	}
	number, unit := leadingNumber(text)
	n, ok := ParseDecimal(number)
	if !ok {
		return 0, problem.Refuse(sizeFix, "%s is not a size", problem.Quote(text))
	}
	length := sizeUnit(strings.TrimSpace(unit))
	if length == 0 {
		return 0, problem.Refuse("the units are B, KiB, MiB, GiB, TiB and KB, MB, GB, TB",
			"%s has the unknown unit %s", problem.Quote(text), problem.Quote(unit))
	}
	size, ok := n.Times(length)
	if !ok {
		return 0, problem.Refuse(sizeFix, "%s is too large or not a whole number of bytes", problem.Quote(text))
	}
	return size, nil
}

// FormatSize writes a size in the largest binary unit that divides it. ParseSize reads the text back.
func FormatSize(size int64) string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if length := sizeUnit(unit); size != 0 && size%length == 0 {
			return strconv.FormatInt(size/length, 10) + unit
		}
	}
	return strconv.FormatInt(size, 10) + "B"
}

// SizeIn returns a parser that is ParseSize, but refuses sizes below least or above most bytes.
func SizeIn(least, most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		size, err := ParseSize(text)
		if err != nil {
			return 0, err
		}
		if size < least || size > most {
			return 0, problem.Refuse(fmt.Sprintf("write %s to %s", FormatSize(least), FormatSize(most)),
				"%s is out of range", problem.Quote(text))
		}
		return size, nil
	}
}
