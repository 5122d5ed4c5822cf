package commands

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/terminal"
	"weir/cmd/weir/internal/cli/top"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func topCommand() *cobra.Command {
	api, every, once, order, as := "", 2*time.Second, false, string(top.ByDepth), cli.ForPeople
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch apis and buckets live in the terminal",
		Long: `Shows live, until q: for every api the jobs that arrive, the calls that end and the refused jobs per second,
what was spent today, and whether weir calls it; the dead letters by cause; and the deepest buckets. For each bucket it
shows how full it is, how many jobs arrive, when it will be empty if no more arrive, and what it waits for. Like
` + "`weir status`" + ` and ` + "`weir keys`" + ` it reads the 200 deepest buckets of each api.

Keys: j and k or the arrows select, s and S sort, / filters by key and api, p and r pause and resume the selected
bucket, P and R its api; each asks first. ? lists the keys, q or Ctrl-C ends. NO_COLOR turns colours off.

Without a terminal, and with --once or --json, it prints one frame; that takes a second, to measure the rates.`,
		Example: "  weir top\n  weir top --api credit-check --sort level\n  weir top --once --json | jq .rates",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 500*time.Millisecond || every > time.Hour {
				return cli.Usage(errors.New("--every is 500ms to 1h"))
			}
			if !slices.Contains(top.Orders(), top.Order(order)) {
				return cli.Usage(fmt.Errorf("--sort %q: must be one of %v", order, top.Orders()))
			}
			return connect.With(func(c *connect.Connection) error {
				source, view := top.NewSource(c, api), top.View{Order: top.Order(order)}
				in, out := terminalOf(cmd)
				if once || as == cli.AsJSON || in == nil {
					return printTop(cmd, source, view, as)
				}
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
				defer stop()
				view.Color = terminal.Styled()
				return top.Run(ctx, top.Options{In: in, Out: out, Connection: c, Source: source, View: view, Every: every})
			})
		},
	}
	cmd.Flags().StringVar(&api, "api", api, "only this api")
	cmd.Flags().DurationVar(&every, "every", every, "how often to ask")
	cmd.Flags().StringVar(&order, "sort", order, "depth, level, empty, in or key")
	cmd.Flags().BoolVar(&once, "once", once, "print one frame and end")
	as.Add(cmd.Flags(), "one frame as one JSON object")
	return cmd
}

// terminalOf returns the terminal that a command reads from and writes to. Both are nil if there is no terminal.
func terminalOf(cmd *cobra.Command) (in, out *os.File) {
	in, reads := cmd.InOrStdin().(*os.File)
	out, writes := cmd.OutOrStdout().(*os.File)
	if !reads || !writes || !term.IsTerminal(int(in.Fd())) || !terminal.Watched(out) {
		return nil, nil
	}
	return in, out
}

// betweenFrames is the time between the two frames from which printTop computes rates.
const betweenFrames = time.Second

func printTop(cmd *cobra.Command, source *top.Source, view top.View, as cli.Format) error {
	if _, err := source.Next(cmd.Context()); err != nil {
		return err
	}
	select {
	case <-time.After(betweenFrames):
	case <-cmd.Context().Done():
		return cmd.Context().Err()
	}
	frame, err := source.Next(cmd.Context())
	if err != nil {
		return err
	}
	if as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), frame)
	}
	for _, line := range view.All(frame) {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
			return fmt.Errorf("write the frame: %w", err)
		}
	}
	return nil
}
