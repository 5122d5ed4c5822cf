package commands

import (
	"os"
	"strings"

	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/demo"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/spf13/cobra"
)

// defaultHTTP is the address at which weir serves its console by default.
const defaultHTTP = "127.0.0.1:8480"

func demoCommand() *cobra.Command {
	var exitAfter, asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show weir working, in twenty seconds, with a fake paid api",
		Long: `Shows weir working with a fake paid api. It smooths a burst of jobs to the api's rate, keeps jobs that do not
fit as dead letters, survives a kill -9, and ends with an independent check of the calls that the api got. It needs
nothing and leaves nothing behind. Afterwards weir keeps serving until Ctrl-C, so that you can try it.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := demo.Options{
				Exit: exitAfter, Out: os.Stdout, NATS: strings.TrimPrefix(connect.DefaultURL, "nats://"), HTTP: defaultHTTP, Attributes: machine.ChildAttributes,
			}
			if asJSON {
				o.Out, o.JSON = os.Stderr, os.Stdout
			}
			return demo.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&exitAfter, "exit", false, "end after the verdict instead of serving")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the figures as JSON on stdout, the story on stderr")
	return cmd
}
