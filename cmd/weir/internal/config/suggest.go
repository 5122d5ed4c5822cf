package config

import (
	"slices"
	"strings"
)

// Closest returns the candidate a mistyped name most likely meant, or "" when none is near: at most one typing error
// in three letters, two in all. A swap of neighbours counts as one.
func Closest(name string, candidates []string) string {
	const longest = 64
	if len(name) > longest {
		return ""
	}
	best, bestDistance := "", 3
	for _, candidate := range candidates {
		d := typingErrors(strings.ToLower(name), strings.ToLower(candidate))
		if d < bestDistance && d*3 <= max(len(name), len(candidate)) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// typingErrors counts the letters to insert, delete, replace or swap to make b of a.
func typingErrors(a, b string) int {
	var before []int // the row two above: a swap reaches back to it
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// meant is the fix for a name that is not among names: the nearest one, or all of them.
func meant(name string, names []string) string {
	if c := Closest(name, names); c != "" {
		return `did you mean "` + c + `"?`
	}
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) == 1 {
		return "it can only be " + sorted[0]
	}
	last := len(sorted) - 1
	return "it can be " + strings.Join(sorted[:last], ", ") + " or " + sorted[last]
}
