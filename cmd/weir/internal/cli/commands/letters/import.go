package letters

import (
	"context"
	"fmt"
	"io"
	"os"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// mostLine is the most bytes of a line in a file of letters. It has room for the largest body in base64, and for
// headers.
const mostLine = 96 << 20

func deadImportCommand() *cobra.Command {
	as, dryRun := cli.Format(""), false
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Store dead letters that were exported",
		Long: `Stores dead letters that dead export has written, here or on another server: as letters, never as jobs. It
calls no api and sends no event. Each letter keeps its subject, headers, body and time to the byte. Only its number is
new.

Letters that are there already are skipped, so you can run an import again. FILE is - for stdin. --dry-run only reads
the file.`,
		Example: "  weir dead export --api credit-check --out letters.jsonl\n  WEIR_NATS_URL=nats://other:4222 weir dead import letters.jsonl",
		Args:    cli.Takes("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return cli.Usage(err)
				}
				defer func() { _ = file.Close() }()
				in = file
			}
			return withLetters(cmd, func(ctx context.Context, c *connect.Connection, store *deadview.Store) error {
				return importLetters(ctx, cmd, c, store, in, as, dryRun)
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only read the file, and report whether its letters can be imported")
	return cmd
}

func importLetters(ctx context.Context, cmd *cobra.Command, c *connect.Connection, store *deadview.Store, in io.Reader, as cli.Format, dryRun bool) error {
	i, err := store.NewImport(ctx, deadletter.MostImported)
	if err != nil {
		return c.Explain(err)
	}
	did, bar := deadview.Imported{DryRun: dryRun}, cli.NewProgressBar(cmd.ErrOrStderr(), "imported", 0)
	err = deadview.ReadExported(in, mostLine, func(line int, letter deadletter.Copy) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		did.Letters = line
		bar.Show(line)
		if dryRun {
			return letter.Check()
		}
		return i.Add(ctx, letter)
	})
	if flushErr := i.Flush(ctx); err == nil {
		err = flushErr
	}
	bar.Clear()
	did.Stored, did.Known = i.Stored, i.Known
	if err != nil {
		return c.Explain(fmt.Errorf("%w (%d were stored; start it again to go on)", err, did.Stored))
	}
	if as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), did)
	}
	t := &cli.Table{}
	t.Row("letters", fmt.Sprint(did.Letters))
	if !dryRun {
		t.Row("stored", fmt.Sprint(did.Stored))
		t.Row("known", fmt.Sprintf("%d were there already", did.Known))
	}
	return t.Print(cmd.OutOrStdout())
}
