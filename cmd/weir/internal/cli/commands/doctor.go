package commands

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/doctor"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
)

func doctorCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for future trouble: disk, clock, Redis, connections to the apis, limits that contradict each other",
		Long: `Looks for future trouble, and prints one line per finding, with its fix. It checks what ` + "`weir status`" + `
calls a problem; the disk, its file system and its sync time; the clock against the server's; how late this machine
wakes a process, against the jitter; Redis and whether it evicts; limits that contradict each other and secrets that are
missing here; and names, connections and certificates of the apis. It calls no api.

Run it where weir runs, with weir's environment. Exit code 0: nothing has to be fixed, 1: something has, 5: the server
cannot be reached; the other findings are printed all the same.`,
		Example: "  weir doctor\n  weir doctor --json | jq 'select(.grade != \"ok\")'",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := environment.Read()
			if err != nil {
				return cli.Usage(err)
			}
			o := doctor.Options{Settings: settings}
			c, unreachable := connect.DialAs(settings)
			if unreachable == nil {
				defer c.Close()
				o.Connection = c
				ctx, done := c.Denied.Tolerate(cmd.Context()) // a viewer may lack the right to read the configuration
				if v, err := admin.CurrentVersion(ctx, c); err == nil {
					o.Config, o.Confirmed = v.Config, v.Vendors
				}
				done()
				if o.Status, err = status.Gather(cmd.Context(), c, 1, nil); err != nil {
					return err
				}
			} else if settings.Config != "" {
				if text, err := admin.ReadFile(settings.Config); err == nil {
					// The error is ignored here: `weir config check` reports such problems.
					o.Config, _ = config.Parse(text, config.Options{Name: settings.Config})
				}
			}
			err = printFindings(cmd, doctor.Examine(cmd.Context(), o), as)
			if unreachable != nil {
				return unreachable
			}
			return err
		},
	}
	as.Add(cmd.Flags(), "one JSON object per line")
	return cmd
}

// printFindings prints the findings, and fails if one of them is bad.
func printFindings(cmd *cobra.Command, findings []doctor.Finding, as cli.Format) error {
	out, bad := cmd.OutOrStdout(), 0
	t := &cli.Table{}
	for i := range findings {
		f := &findings[i]
		if f.Grade == doctor.Bad {
			bad++
		}
		if as == cli.AsJSON {
			if err := cli.PrintJSON(out, f); err != nil {
				return err
			}
			continue
		}
		text := f.What
		if f.Fix != "" {
			text += ": " + f.Fix
		}
		t.Row(string(f.Grade), text)
	}
	if as == cli.ForPeople {
		if err := t.PrintWhole(out); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%s", cli.Count(bad, "problem"))
	}
	return nil
}
