package commands

import (
	"fmt"
	"io"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/help"
	"weir/cmd/weir/internal/cli/terminal"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mostPassages is the most passages of the reference that a search shows: about twenty screens.
const mostPassages = 200

// searchHelp writes the help of commands that contains word, and then the passages of the reference that contain it. It
// fails with exit code 3 if there are none of either. If it omits passages, it writes their number to talk.
func searchHelp(root *cobra.Command, out, talk io.Writer, word string) error {
	s := search{out: out, width: min(terminal.Width(out), widestHelp)}
	s.commands(root, strings.ToLower(word))
	found, all := help.Search(word, mostPassages)
	for _, p := range found {
		under := "weir help " + p.Topic + ": " + p.Section
		s.passage(under, p.Plain())
	}
	if s.written == 0 {
		return cli.NotFound(fmt.Errorf("neither a topic nor a command's help contains %q; weir help lists both", word))
	}
	if all > len(found) {
		_, _ = fmt.Fprintf(talk, "%d more passages are not shown: search for a rarer word, or a phrase\n", all-len(found))
	}
	return s.err
}

// search writes the found passages. Each group of passages is below the command that shows their whole text.
type search struct {
	out     io.Writer
	width   int // width of a line in characters; 0: out is not a terminal
	under   string
	written int
	err     error // the first error of a write
}

// passage writes a passage. Before it, it writes the heading under, unless the last passage has the same heading.
func (s *search) passage(under, text string) {
	if under != s.under {
		heading := under + "\n"
		if s.written > 0 {
			heading = "\n" + heading
		}
		s.write(heading)
		s.under = under
	}
	const margin = "  "
	lines := []string{text}
	if s.width > 0 {
		lines = terminal.Wrap(text, max(20, s.width-len(margin)))
	}
	s.write(margin + strings.Join(lines, "\n"+margin) + "\n")
	s.written++
}

func (s *search) write(text string) {
	if s.err == nil {
		if _, err := io.WriteString(s.out, text); err != nil {
			s.err = fmt.Errorf("write what was found: %w", err)
		}
	}
}

// commands writes the lines that contain word in the help of about and of all commands below about. word is in lower
// case.
func (s *search) commands(about *cobra.Command, word string) {
	contains := func(text string) bool { return strings.Contains(strings.ToLower(text), word) }
	if about.IsAvailableCommand() {
		under := about.CommandPath() + " --help"
		if contains(about.CommandPath()) || contains(about.Short) {
			s.passage(under, about.Short)
		}
		for line := range strings.SplitSeq(about.Long, "\n") {
			if contains(line) {
				s.passage(under, strings.TrimSpace(line))
			}
		}
		about.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && (contains("--"+f.Name) || contains(f.Usage)) {
				s.passage(under, "--"+f.Name+": "+f.Usage)
			}
		})
	}
	for _, c := range about.Commands() {
		s.commands(c, word)
	}
}
