package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"weir/cmd/weir/internal/terminal"
)

// possible reports whether a command that asks can get a yes: it was given, or somebody is there to ask.
func (c *confirmation) possible(cmd *cobra.Command) bool {
	file, ok := cmd.InOrStdin().(*os.File)
	return c.yes || ok && terminal.Watched(file) && terminal.Watched(cmd.ErrOrStderr())
}

// insist is ask for what cannot be undone or costs money: nobody there is a no.
func (c *confirmation) insist(cmd *cobra.Command, question string) error {
	if !c.possible(cmd) {
		return refused(fmt.Errorf("nothing was done: --yes is not given, and nobody is there to be asked: %q", question))
	}
	return c.ask(cmd, question)
}
