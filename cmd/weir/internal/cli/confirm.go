package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"weir/cmd/weir/internal/cli/terminal"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Confirmation holds the flag --yes of a command that asks before it changes something.
type Confirmation struct{ yes bool }

// Add defines the flag --yes.
func (c *Confirmation) Add(flags *pflag.FlagSet) {
	flags.BoolVar(&c.yes, "yes", false, "do not ask")
}

// Ask asks the user at the terminal, and fails with exit code 4 unless the answer is yes. If --yes was given, or there
// is no terminal, Ask succeeds without asking.
func (c *Confirmation) Ask(cmd *cobra.Command, question string) error {
	in, talk := cmd.InOrStdin(), cmd.ErrOrStderr()
	if file, ok := in.(*os.File); c.yes || !ok || !terminal.Watched(file) || !terminal.Watched(talk) {
		return nil
	}
	_, _ = fmt.Fprintf(talk, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return Refused(errors.New("nothing was changed"))
}

// Possible reports whether the command can get the answer yes: whether --yes was given, or there is a terminal.
func (c *Confirmation) Possible(cmd *cobra.Command) bool {
	file, ok := cmd.InOrStdin().(*os.File)
	return c.yes || ok && terminal.Watched(file) && terminal.Watched(cmd.ErrOrStderr())
}

// Insist is Ask for a change that cannot be undone or costs money. Without a terminal it fails unless --yes was given.
func (c *Confirmation) Insist(cmd *cobra.Command, question string) error {
	if !c.Possible(cmd) {
		return Refused(fmt.Errorf("nothing was done: without a terminal, --yes must answer %q", question))
	}
	return c.Ask(cmd, question)
}
