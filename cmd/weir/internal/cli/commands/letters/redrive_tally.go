package letters

import (
	"io"
	"maps"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"
)

// printTally prints the outcome of a redrive. As text it omits the letters that the plan has already shown as left
// alone.
func (f *redriveFlags) printTally(out io.Writer, t *deadletter.Tally) error {
	planned := f.planned
	if f.as == cli.AsJSON {
		return cli.PrintJSON(out, t)
	}
	tab := &cli.Table{}
	addTally(tab, t, planned)
	return tab.Print(out)
}

// addTally adds the outcome of a redrive to a table. It omits the letters left alone that planned already has.
func addTally(tab *cli.Table, t *deadletter.Tally, planned map[deadletter.Skip]int) {
	tab.Row("redriven", strconv.Itoa(t.Redriven+t.Known))
	for _, line := range []struct {
		name string
		n    int
		what string
	}{
		{"overflowed", t.Overflowed, "again, each a new letter"},
		{"refused", t.Refused, "again, each a new letter"},
		{"settled", t.Settled, "whose job had gone on: the letter is deleted"},
		{"not deleted", t.Left, "though the job has gone on"},
	} {
		if line.n > 0 {
			tab.Row(line.name, strconv.Itoa(line.n)+" "+line.what)
		}
	}
	for _, skip := range slices.Sorted(maps.Keys(t.Skipped)) {
		if t.Skipped[skip] != planned[skip] {
			tab.Row("left alone", strconv.Itoa(t.Skipped[skip])+" "+deadview.SkipText(skip))
		}
	}
}
