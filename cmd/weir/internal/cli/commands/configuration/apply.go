package configuration

import (
	"errors"
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/proposal"

	"github.com/spf13/cobra"
)

func configApplyCommand() *cobra.Command {
	file, how := "", manner{}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Apply a configuration file on every running weir at once",
		Long: `Checks a configuration file, shows what it changes, and applies it: every weir on the server follows within a
moment, without a restart. A higher limit takes effect at once, a lower one too, and no job is lost. On a terminal the
command asks first; elsewhere it needs --yes. It warns of a quota or a budget that the new configuration would find used
up, and says until when there would be no calls. Exit code 1: the file is not valid.

The command returns when every dispatching replica follows. If a replica is stopped or cut off and does not answer, the
command ends that replica's right to call, which takes some seconds; the replica then continues only with the new
configuration. If a replica cannot follow, because a secret is missing there or because replicas may not share a limit
without Redis, it goes on as before. Then the command reverts the configuration, by a new version with the content of
the previous one, and exits with 1. An api that you remove accepts no more jobs. Those already in its queue are called
until weir restarts, and wait from then on until the api is back. With limits in Redis they wait at once if other apis
of its account remain.

It changes nothing if another change of the configuration came first.`,
		Example: "  weir config apply -f weir.yaml --dry-run\n  weir config apply -f weir.yaml --yes --json",
		Args:    cli.Takes(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return applyFile(cmd, file, how) },
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file, - for stdin (default WEIR_CONFIG, or weir.yaml)")
	cmd.Flags().BoolVar(&how.dryRun, "dry-run", false, "show what would change, and change nothing")
	how.confirm.Add(cmd.Flags())
	how.as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

func configDiffCommand() *cobra.Command {
	file, how := "", manner{dryRun: true}
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show what a configuration file would change",
		Long: `Checks a configuration file. Shows how it differs from the running configuration, and which of the changed
quotas and budgets are used up already. It changes nothing. Exit code 1: the file is not valid.`,
		Example: "  weir config diff\n  weir config diff -f weir.yaml --json | jq .changes",
		Args:    cli.Takes(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return applyFile(cmd, file, how) },
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file, - for stdin (default WEIR_CONFIG, or weir.yaml)")
	how.as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// manner is how a command proposes a configuration.
type manner struct {
	dryRun  bool
	confirm cli.Confirmation
	as      cli.Format
}

// applyFile checks a configuration file and proposes it.
func applyFile(cmd *cobra.Command, file string, how manner) error {
	file, text, err := configText(cmd, file)
	if err != nil {
		return err
	}
	c, err := config.Parse(text, config.Options{Name: file})
	if err != nil {
		return err // exit code 1: the command's arguments are right, the file is wrong
	}
	for _, p := range c.Warnings {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), saidOf(file, "warning", p))
	}
	if file == "-" {
		file = "stdin"
	}
	settings, err := environment.Read()
	if err != nil {
		return cli.Usage(err)
	}
	return connect.With(func(conn *connect.Connection) error {
		return how.apply(cmd, conn, &proposal.Proposal{Who: cli.User(), From: file, Text: string(text), Config: c, Site: settings.Site})
	})
}

// apply shows the difference, asks for confirmation, puts the proposal in force, and reports the outcome.
func (m *manner) apply(cmd *cobra.Command, c *connect.Connection, p *proposal.Proposal) error {
	agreed := false
	told, err := p.Apply(cmd.Context(), c, cmd.ErrOrStderr(), func(d proposal.Difference) (_ bool, err error) {
		m.show(cmd, &d)
		if !d.Same && !m.dryRun {
			err = m.confirm.Insist(cmd, fmt.Sprintf("Apply %s?", cli.Count(len(d.Changes), "change")))
		}
		agreed = err == nil
		return !m.dryRun, err
	})
	if agreed && m.as == cli.AsJSON && !errors.Is(err, admin.ErrLostRace) {
		err = errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), told))
	}
	return err
}

// show prints what the proposal would change.
func (m *manner) show(cmd *cobra.Command, d *proposal.Difference) {
	talk := cmd.ErrOrStderr()
	if m.as == cli.ForPeople {
		for _, change := range d.Changes {
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), cli.Visible(change.String()))
		}
	}
	if d.Same {
		_, _ = fmt.Fprintf(talk, "weir: version %d is the newest and says the same: nothing changed\n", d.Version)
		return
	}
	for i := range d.Spent {
		_, _ = fmt.Fprintf(talk, "weir: %s\n", d.Spent[i].Text())
	}
	if d.Unread != nil {
		_, _ = fmt.Fprintf(talk, "weir: %v\n", d.Unread)
	}
	if m.dryRun {
		_, _ = fmt.Fprintf(talk, "weir: %s; nothing was changed\n", cli.Count(len(d.Changes), "change"))
	}
}
