package config

import (
	"fmt"
	"strings"
)

// Money is an amount in millionths of the currency unit, so that sums are exact. weir knows no currencies: price and
// budgets of one file are in the same one.
type Money int64

const (
	millionths = 1_000_000
	// mostMoney is a thousand million units: 10^15 millionths, which a shared store's scripts still count exactly.
	mostMoney Money = 1_000_000_000 * millionths
)

// ParseMoney reads an amount of 0 to 1,000,000,000 with at most six digits behind the point: 0.40, 200, 0.000125.
func ParseMoney(text string) (Money, error) {
	const fix = "write a plain amount such as 0.40"
	if strings.HasPrefix(text, "-") {
		return 0, refuse(fix, "%s is negative", quote(text))
	}
	n, ok := parseDecimal(text)
	if !ok {
		return 0, refuse(fix+", without currency or separators", "%s is not an amount of money", quote(text))
	}
	amount, ok := n.times(millionths)
	if !ok {
		return 0, refuse("write at most six digits behind the point", "%s is finer than a millionth", quote(text))
	}
	if Money(amount) > mostMoney {
		return 0, refuse("write at most "+mostMoney.String(), "%s is too much", quote(text))
	}
	return Money(amount), nil
}

// String writes the amount with two digits behind the point, or as many as it needs: 0.40, 200.00, 0.000125.
func (m Money) String() string {
	text := fmt.Sprintf("%d.%06d", m/millionths, m%millionths)
	for range 4 {
		text = strings.TrimSuffix(text, "0")
	}
	return text
}
