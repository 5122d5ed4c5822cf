package main

import (
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/limitstate"

	"github.com/spf13/cobra"
)

func configApplyCommand() *cobra.Command {
	file, how := "", manner{}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Put a configuration file in force, on every running weir at once",
		Long: `Checks a configuration file, shows what it changes, and puts it in force: every weir on the server follows within a
moment, without a restart. A raised limit helps at once and a lowered one binds at once; no job is lost, whatever becomes
smaller. On a terminal it asks first; elsewhere it needs --yes. A quota or a budget that is used up already under the new
configuration is told before, with until when nothing would be called. Exit code 1 when the file is not valid.

The command returns when every dispatching replica follows. One that does not answer, because it is stopped or cut off, has its
right to call ended, which takes some seconds: it goes on only by the new configuration. One that cannot, because a secret is missing where it
runs or because replicas may not share a limit without Redis, goes on as before: then the command takes the configuration back,
by a new version that says what the one before said, and ends with 1. Jobs of an api that is taken out are refused from then on;
those already in its queue are called until weir restarts, and wait there from then on until the api is back.

It changes nothing when somebody else has changed the configuration meanwhile.`,
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
		Long: `Checks a configuration file and shows how it differs from the configuration in force, and which of the changed quotas and budgets
are used up already. It changes nothing. Exit code 1 when the file is not valid.`,
		Example: "  weir config diff\n  weir config diff -f weir.yaml --json | jq .changes",
		Args:    cli.Takes(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return applyFile(cmd, file, how) },
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file, - for stdin (default WEIR_CONFIG, or weir.yaml)")
	how.as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// manner is how a configuration is proposed.
type manner struct {
	dryRun  bool
	confirm cli.Confirmation
	as      cli.Format
}

// applyFile checks a file and proposes it.
func applyFile(cmd *cobra.Command, file string, how manner) error {
	file, text, err := configText(cmd, file)
	if err != nil {
		return err
	}
	c, err := config.Parse(text, config.Options{Name: file})
	if err != nil {
		return err // exit code 1: the command was not asked in a wrong way, the file is wrong
	}
	for _, p := range c.Warnings {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), warningLine(file, p))
	}
	if file == "-" {
		file = "stdin"
	}
	return connect.With(func(conn *connect.Connection) error {
		p := proposal{from: file, text: string(text), config: c}
		store, err := control.OpenConfigStore(cmd.Context(), conn)
		switch {
		case err != nil && how.dryRun && control.NeverApplied(err):
			return p.apply(cmd, conn, store, how)
		case err != nil && control.NeverApplied(err):
			store, err = control.MakeConfigStore(cmd.Context(), conn)
		}
		if err != nil {
			return err
		}
		if p.current, p.last, err = store.Newest(cmd.Context()); err != nil {
			return conn.Explain(err)
		}
		return p.apply(cmd, conn, store, how)
	})
}

// proposal is a configuration that is to take the place of another.
type proposal struct {
	from    string
	text    string
	config  *config.Config
	current *control.Version // nil for none
	last    uint64           // the revision it was compared with
}

// appliedJSON is what became of a proposal, as --json prints it.
type appliedJSON struct {
	Applied    bool         `json:"applied"` // false: nothing changes
	OldVersion uint64       `json:"old_version"`
	Version    uint64       `json:"version"` // the newest now
	Changes    []changeJSON `json:"changes"`
	// Spent are changed quotas and budgets of which nothing is left under the new configuration.
	Spent []limitstate.Spent `json:"spent,omitempty"`
}

type changeJSON struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// apply shows the difference, asks, stores and tells.
func (p *proposal) apply(cmd *cobra.Command, c *connect.Connection, store control.ConfigStore, how manner) error {
	var before *config.Config
	var told appliedJSON
	next := control.StoredConfig{YAML: p.text, From: p.from, Who: cli.User()}
	if p.current != nil {
		before, told.OldVersion, next.FileSum = p.current.Config, p.current.Number, p.current.FileSum
	}
	told.Version, told.Changes = told.OldVersion, []changeJSON{}
	talk := cmd.ErrOrStderr()
	for _, d := range before.Diff(p.config) {
		told.Changes = append(told.Changes, changeJSON(d))
		if how.as == cli.ForPeople {
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), cli.Visible(d.String()))
		}
	}
	// A last version that nobody can read is to be replaced, even by the text of the one before it.
	if len(told.Changes) == 0 && p.current != nil && p.last == p.current.Number {
		_, _ = fmt.Fprintf(talk, "weir: version %d is the newest and says the same: nothing changed\n", told.Version)
		if how.dryRun {
			return p.tell(cmd, told, how.as)
		}
		return errors.Join(p.tell(cmd, told, how.as), control.AwaitFollowed(cmd.Context(), c, cmd.ErrOrStderr(), told.Version))
	}
	told.Spent = p.warnOfSpent(cmd, c, before)
	if how.dryRun {
		_, _ = fmt.Fprintf(talk, "weir: %s; nothing was changed\n", cli.Count(len(told.Changes), "change"))
		return p.tell(cmd, told, how.as)
	}
	if err := how.confirm.Insist(cmd, fmt.Sprintf("Apply %s?", cli.Count(len(told.Changes), "change"))); err != nil {
		return err
	}
	next.At, next.Changes = time.Now().UTC(), len(told.Changes)
	version, err := store.Put(cmd.Context(), next, p.last)
	if errors.Is(err, control.ErrLostRace) {
		return fmt.Errorf("%w: nothing was applied; look at `weir config show` and apply again", err)
	} else if err != nil {
		return c.Explain(err)
	}
	told.Applied, told.Version = true, version
	p.announce(cmd, c, next, told)
	err = control.AwaitFollowed(cmd.Context(), c, cmd.ErrOrStderr(), version)
	if errors.Is(err, control.ErrCannotFollow) {
		err = p.takeBack(cmd, c, store, &told, err)
	}
	return errors.Join(err, p.tell(cmd, told, how.as))
}

// warnOfSpent tells which limits would keep everything from being called as soon as the proposal is in force.
func (p *proposal) warnOfSpent(cmd *cobra.Command, c *connect.Connection, before *config.Config) []limitstate.Spent {
	talk := cmd.ErrOrStderr()
	spent, err := limitstate.SpentAlready(cmd.Context(), c.JetStream, before, p.config, time.Now())
	for i := range spent {
		_, _ = fmt.Fprintf(talk, "weir: %s\n", spent[i].Text())
	}
	if err != nil {
		_, _ = fmt.Fprintf(talk, "weir: %v\n", c.Explain(err))
	}
	return spent
}

// announce tells of a version that is stored.
func (p *proposal) announce(cmd *cobra.Command, c *connect.Connection, next control.StoredConfig, told appliedJSON) {
	talk := cmd.ErrOrStderr()
	data := control.ConfigChange{Who: next.Who, From: next.From, OldVersion: told.OldVersion, NewVersion: told.Version, Changes: next.Changes}
	if err := data.Event().Publish(cmd.Context(), c.JetStream); err != nil {
		_, _ = fmt.Fprintf(talk, "weir: applied, but the notification could not be stored: %v\n", err)
	}
	_, _ = fmt.Fprintf(talk, "weir: stored as version %d\n", told.Version)
}

// takeBack puts what was in force before a version that cannot be followed in its place, unless somebody else has changed
// the configuration since: what nobody runs by must not be what show, pause and resume go by. It always fails, with why.
func (p *proposal) takeBack(cmd *cobra.Command, c *connect.Connection, store control.ConfigStore, told *appliedJSON, why error) error {
	if p.current == nil {
		return fmt.Errorf("%w; it stays stored, since there was none before it: mend that there, or apply another", why)
	}
	former := p.current.StoredConfig
	former.From = fmt.Sprintf("version %d, since version %d cannot be followed", p.current.Number, told.Version)
	former.Who, former.At, former.Changes = cli.User(), time.Now().UTC(), len(told.Changes)
	version, err := store.Put(cmd.Context(), former, told.Version)
	if err != nil {
		return fmt.Errorf("%w; it was not taken back: %w", why, err)
	}
	back := appliedJSON{OldVersion: told.Version, Version: version}
	told.Applied, told.Version = false, version
	p.announce(cmd, c, former, back)
	why = fmt.Errorf("%w; it was taken back: version %d says what version %d said", why, version, p.current.Number)
	return errors.Join(why, control.AwaitFollowed(cmd.Context(), c, cmd.ErrOrStderr(), version))
}

func (p *proposal) tell(cmd *cobra.Command, told appliedJSON, as cli.Format) error {
	if as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), told)
	}
	return nil
}
