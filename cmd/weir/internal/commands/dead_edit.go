package commands

import (
	"context"
	"fmt"
	"net/textproto"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// editFlags are the changes of a letter that the command line asks for.
type editFlags struct {
	data  string
	set   []string
	unset []string
}

func deadEditCommand() *cobra.Command {
	f, e := redriveFlags{}, editFlags{}
	cmd := &cobra.Command{
		Use:   "edit SEQ",
		Short: "Hand one dead letter in again, with changes",
		Long: `Hands the job of one dead letter in again, with another body or other headers. The letter itself stays as it is until its job is
taken, or overflows again, and goes then, as with dead redrive; where the edited job is refused otherwise it stays. The job keeps its id, and so its idempotency key. Weir-Dead-Edited stays with it and says of
which letter it is and what was changed: the body, and which headers.

What weir itself writes, and what the job is known by, cannot be edited: its id, its key, its api. An edited request under an idempotency
key that the api has seen is another request: so a letter whose call may have been processed needs --include-unknown, also where the api is
idempotent.`,
		Example: `  weir dead export 17 --raw >body.json
  weir dead edit 17 --data @body.json
  weir dead edit 17 --set-header 'Weir-Path: /v3/check' --unset-header Weir-Deadline --yes`,
		Args: cli.Takes("SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if f.edit, err = e.read(cmd); err != nil {
				return err
			}
			return f.on(cmd, args, func(ctx context.Context, c *connect.Connection, store *deadview.Store) error {
				return f.redrive(ctx, cmd, c, store)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.data, "data", "", "the body: a text, @FILE, or - for stdin")
	flags.StringArrayVar(&e.set, "set-header", nil, "a header in place of those of its name, as in 'Weir-Path: /v3'; again for more values")
	flags.StringArrayVar(&e.unset, "unset-header", nil, "a header to leave out")
	f.confirm.Add(flags)
	f.as.Add(flags, "one JSON object")
	f.rate = deadview.UsualRate
	flags.BoolVar(&f.dryRun, "dry-run", false, "only say what would be done")
	flags.BoolVar(&f.includeUnknown, "include-unknown", false, "also where its call may have been processed: the api may bill it twice")
	flags.BoolVar(&f.dropDeadline, "drop-deadline", false, "forget the job's deadline")
	return cmd
}

// read returns the edit.
func (f *editFlags) read(cmd *cobra.Command) (*deadletter.Edit, error) {
	e := &deadletter.Edit{Unset: f.unset, EditedBy: cli.User()}
	if cmd.Flags().Changed("data") {
		body, err := readData(f.data, cmd.InOrStdin())
		if err != nil {
			return nil, cli.Usage(err)
		}
		e.Body, e.SetBody = body, true
	}
	for _, line := range f.set {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, cli.Usage(fmt.Errorf("--set-header %q is no header: write 'Name: value'", line))
		}
		if e.Set == nil {
			e.Set = map[string][]string{}
		}
		e.Set[name] = append(e.Set[name], textproto.TrimString(value))
	}
	if err := e.Check(); err != nil {
		return nil, cli.Usage(err)
	}
	return e, nil
}
