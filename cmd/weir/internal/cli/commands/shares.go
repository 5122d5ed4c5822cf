package commands

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/ops/shares"

	"github.com/spf13/cobra"
)

func sharesCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "shares [ACCOUNT] [SITE=PERCENT...]",
		Short: "Show or move the shares of an account's limits at several sites",
		Long: `Shows the shares of an account's limits that are in force at each site, or moves them. WEIR_SITES says where the
sites are: "weir help sites".

A move lowers sites first. It waits until every replica there follows, and until no window can see more calls than the
new shares allow: at most the longest window of the account's limits. Then it raises the others. Sites that you do not
name keep their shares.

If a site does not answer, nothing is raised. If the command ends in the middle, the shares are at most 100 % together;
run it again to go on. After a move, write the new shares into the configuration file of every site.`,
		Example: "  weir shares\n  weir shares acme\n  weir shares acme eu=50% us=50%",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := environment.Read()
			if err != nil {
				return cli.Usage(err)
			}
			reach := shares.NewReach(settings)
			defer reach.Close()
			if len(args) < 2 {
				return showShares(cmd, reach, strings.Join(args, ""), as)
			}
			target, err := wantedShares(args[1:])
			if err != nil {
				return cli.Usage(err)
			}
			return moveShares(cmd, reach, &shares.Move{Who: cli.User(), Account: args[0], Target: target, Talk: cmd.ErrOrStderr()}, as)
		},
	}
	as.Add(cmd.Flags(), "one JSON object per site, or one for a move")
	return cmd
}

// wantedShares reads arguments like eu=50%.
func wantedShares(args []string) (map[string]int64, error) {
	target, sum := map[string]int64{}, int64(0)
	for _, arg := range args {
		site, word, found := strings.Cut(arg, "=")
		percent, err := strconv.ParseInt(strings.TrimSuffix(word, "%"), 10, 64)
		if !found || site == "" || err != nil || !strings.HasSuffix(word, "%") {
			return nil, fmt.Errorf("%q is not a share: write SITE=PERCENT, such as eu=50%%", arg)
		}
		if percent < 1 || percent > bucket.WholeShare {
			return nil, fmt.Errorf("%q: a share is 1%% to %d%%; take a site that calls nothing out of the files (weir help sites)", arg, bucket.WholeShare)
		}
		if _, twice := target[site]; twice {
			return nil, fmt.Errorf("site %s stands twice", site)
		}
		target[site] = percent
		sum += percent
	}
	if sum > bucket.WholeShare {
		return nil, fmt.Errorf("the shares are %d%% together, and %d%% is the whole", sum, bucket.WholeShare)
	}
	return target, nil
}

func moveShares(cmd *cobra.Command, reach *shares.Reach, m *shares.Move, as cli.Format) error {
	moved, err := m.Run(cmd.Context(), reach)
	if moved == nil {
		return err
	}
	if as == cli.AsJSON {
		return errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), moved))
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "weir: moved; write these shares into the configuration file of every site")
	all, err := shares.Show(cmd.Context(), reach, m.Account)
	if err != nil {
		return err
	}
	return printShares(cmd.OutOrStdout(), all)
}

func showShares(cmd *cobra.Command, reach *shares.Reach, account string, as cli.Format) error {
	all, err := shares.Show(cmd.Context(), reach, account)
	if err != nil {
		return err
	}
	if as == cli.AsJSON {
		for _, s := range all {
			if err := cli.PrintJSON(cmd.OutOrStdout(), s); err != nil {
				return err
			}
		}
		return nil
	}
	tellOpen(cmd.ErrOrStderr(), account, all)
	return printShares(cmd.OutOrStdout(), all)
}

// tellOpen says which moves are unfinished. If the shares of an account are together less than 100 %, it says that too.
// account is "" if all has the accounts of one site.
func tellOpen(talk io.Writer, account string, all []shares.Shown) {
	told, sum, known := map[string]bool{"": true}, int64(0), account != ""
	for _, s := range all {
		if !told[s.Unfinished] {
			told[s.Unfinished] = true
			_, _ = fmt.Fprintf(talk, "weir: a move is unfinished: run `%s`, unless that command is at work already\n", s.Unfinished)
		}
		sum, known = sum+s.InForce, known && s.InForce > 0
	}
	if known && sum < bucket.WholeShare {
		_, _ = fmt.Fprintf(talk, "weir: the shares of %s in force are %d%% together\n", account, sum)
	}
}

func printShares(out io.Writer, all []shares.Shown) error {
	t := &cli.Table{}
	t.Row("ACCOUNT", "SITE", "IN FORCE", "FILE", "VERSION", "PROBLEM")
	for _, s := range all {
		version := "-"
		if s.Version > 0 {
			version = strconv.FormatUint(s.Version, 10)
		}
		t.Row(s.Account, s.Site, percentText(s.InForce), percentText(s.File), version, s.Error)
	}
	return t.Print(out)
}

// percentText returns a share for a table.
func percentText(percent int64) string {
	if percent == 0 {
		return "-"
	}
	return strconv.FormatInt(percent, 10) + "%"
}
