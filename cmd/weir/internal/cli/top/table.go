package top

import (
	"slices"
	"strings"

	"weir/cmd/weir/internal/cli/terminal"
)

const (
	columnGap  = 2
	leastLast  = 12 // the least width of the last column; if there is less room, other columns are dropped
	wideEnough = 80 // the least width of a terminal in which rows can show everything
	mostDetail = 3  // the most lines about the selected bucket below the table
)

// table formats a table. If width has no room for all columns, table drops columns in the order in which goes names
// them. It cuts only the last cell of a row. A width of 0 means no bound.
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

// leastWidthOf returns the least width of a table. The last column needs leastLast or less; the other columns need
// their full width.
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
