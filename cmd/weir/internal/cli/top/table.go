package top

import (
	"slices"
	"strings"

	"weir/cmd/weir/internal/cli/terminal"
)

const (
	columnGap  = 2
	leastLast  = 12 // columns that the last field of a row needs, or it is not shown
	wideEnough = 80 // columns of a terminal on which the selected bucket has no lines of its own
	mostDetail = 3  // lines of the selected bucket where its row does not tell all
)

// table lays columns out. If the width has no room for all of them, it leaves out those that goes names, in that order.
// It cuts only the last field of a row. A width of 0 is no bound.
func table(rows [][]string, styles []style, goes []string, width int) []line {
	for _, row := range rows {
		for i := range row {
			row[i] = visible(row[i])
		}
	}
	for _, name := range goes {
		if width == 0 || leastWidthOf(rows) <= width {
			break
		}
		if column := slices.Index(rows[0], name); column >= 0 {
			for i, row := range rows {
				rows[i] = slices.Delete(slices.Clone(row), column, column+1)
			}
		}
	}
	widths := widthsOf(rows)
	lines := make([]line, len(rows))
	for n, row := range rows {
		var text strings.Builder
		for i, cell := range row {
			text.WriteString(cell)
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-terminal.Columns(cell)+columnGap))
			}
		}
		lines[n] = line{terminal.Cut(text.String(), width), styles[n]}
	}
	return lines
}

// leastWidthOf is how wide a table is at least: of its last column little must be shown, of all others everything.
func leastWidthOf(rows [][]string) (width int) {
	widths := widthsOf(rows)
	for i, of := range widths {
		if i == len(widths)-1 {
			return width + min(of, leastLast)
		}
		width += of + columnGap
	}
	return width
}

func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], terminal.Columns(cell))
		}
	}
	return widths
}
