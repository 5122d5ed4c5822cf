package letters

import (
	"context"
	"fmt"
	"net/textproto"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// editFlags are the flags that describe the changes of a letter.
type editFlags struct {
	data  string
	set   []string
	unset []string
}

func deadEditCommand() *cobra.Command {
	f, e := redriveFlags{}, editFlags{}
	cmd := &cobra.Command{
		Use:   "edit SEQ",
		Short: "Submit one dead letter again, with changes",
		Long: `Submits the job of one dead letter again, with another body or other headers. As with dead redrive, the letter
stays until its job is accepted or overflows again. If the edited job is refused for another reason, the letter stays
as it is, and you can edit it again. The job keeps its id, and so its idempotency key. Weir-Dead-Edited stays with the job: the number of the
letter, and what was changed (the body, and which headers).

You cannot edit the headers that weir writes, nor the job's id, key and api. An api that has seen the idempotency key
may take the edited request for another one. So a letter whose call may have been processed needs --include-unknown,
even if the api is idempotent.`,
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
	flags.StringArrayVar(&e.set, "set-header", nil, "replace the headers of that name, such as 'Weir-Path: /v3'; repeat it for more values")
	flags.StringArrayVar(&e.unset, "unset-header", nil, "remove a header")
	f.confirm.Add(flags)
	f.as.Add(flags, "one JSON object")
	f.rate = deadview.UsualRate
	flags.BoolVar(&f.dryRun, "dry-run", false, "only report what would be done")
	flags.BoolVar(&f.includeUnknown, "include-unknown", false, "also if its call may have been processed: the api may bill it twice")
	flags.BoolVar(&f.dropDeadline, "drop-deadline", false, "remove the job's deadline")
	f.addPriority(cmd)
	return cmd
}

// read returns the edit that the flags describe.
func (f *editFlags) read(cmd *cobra.Command) (*deadletter.Edit, error) {
	e := &deadletter.Edit{Unset: f.unset, EditedBy: cli.User()}
	if cmd.Flags().Changed("data") {
		body, err := cli.ReadData(f.data, cmd.InOrStdin())
		if err != nil {
			return nil, cli.Usage(err)
		}
		e.Body, e.SetBody = body, true
	}
	for _, line := range f.set {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, cli.Usage(fmt.Errorf("--set-header %q is not a header: write 'Name: value'", line))
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
