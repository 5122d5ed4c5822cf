package letters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

func deadExportCommand() *cobra.Command {
	flags, out, as, raw := letterFlags{}, "", cli.AsJSON, false
	cmd := &cobra.Command{
		Use:   "export [SEQ...]",
		Short: "Write complete dead letters to a file or stdout",
		Long: `Writes dead letters as JSON, one per line, the oldest first: number, time, subject, every header and the body,
as text or else in base64. dead import stores them again, here or on another server. --raw writes only the bodies, each
followed by a line break. It deletes nothing.`,
		Example: "  weir dead export --api credit-check --out letters.jsonl\n  weir dead export --reason invalid | jq .headers",
		RunE: func(cmd *cobra.Command, args []string) error {
			selection, err := flags.selection(args, time.Now())
			if err != nil {
				return err
			}
			print := printExported
			if raw {
				print = printBody
			}
			return withLetters(cmd, func(ctx context.Context, c *connect.Connection, store *deadview.Store) error {
				scope, err := store.Bound(ctx, selection.Selection)
				if err != nil {
					return err
				}
				return writeTo(cmd.OutOrStdout(), out, func(w io.Writer) error {
					written, err := exportLetters(ctx, c, cmd, scope, func(k *deadletter.Kept) error { return print(w, k) })
					if err == nil && written == 0 {
						err = deadview.None(selection.Filter)
					}
					return err
				})
			})
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().StringVar(&out, "out", "", "the file to write; it appears only when it is complete (default stdout)")
	cmd.Flags().BoolVar(&raw, "raw", false, "write the bodies only")
	as.Add(cmd.Flags(), "one JSON object per line, which is the default")
	cmd.MarkFlagsMutuallyExclusive("raw", "json")
	return cmd
}

// exportLetters writes the letters of a scope and returns their number.
func exportLetters(ctx context.Context, c *connect.Connection, cmd *cobra.Command, scope *deadletter.Scope, write func(*deadletter.Kept) error) (written int, err error) {
	walk, bar := scope.Walk(deadletter.Whole), cli.NewProgressBar(cmd.ErrOrStderr(), "exported", 0)
	defer bar.Clear()
	for {
		chunk, err := walk.Chunk(ctx)
		if err != nil {
			return written, c.Explain(err)
		}
		if len(chunk) == 0 {
			return written, nil
		}
		for i := range chunk {
			if err := write(&chunk[i]); err != nil {
				return written, fmt.Errorf("write dead letter %d: %w", chunk[i].Seq, err)
			}
			written++
		}
		read, of := walk.Progress()
		bar.SetTotal(int(of))
		bar.Show(int(read))
	}
}

func printExported(w io.Writer, k *deadletter.Kept) error {
	return cli.PrintJSON(w, deadview.Export(k))
}

func printBody(w io.Writer, k *deadletter.Kept) error {
	if _, err := w.Write(k.Body); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// writeTo calls write with a buffered writer to the file, or to out if file is "". The file appears only when it is
// complete and on disk.
func writeTo(out io.Writer, file string, write func(io.Writer) error) (err error) {
	if file == "" {
		buffered := bufio.NewWriterSize(out, 1<<16)
		return errors.Join(write(buffered), buffered.Flush())
	}
	part, err := os.Create(file + ".part")
	if err != nil {
		return cli.Usage(fmt.Errorf("--out: %w", err))
	}
	defer func() {
		if err != nil {
			_ = part.Close()
			_ = os.Remove(part.Name()) // the file is not complete
		}
	}()
	buffered := bufio.NewWriterSize(part, 1<<16)
	if err := write(buffered); err != nil {
		return err
	}
	if err := errors.Join(buffered.Flush(), part.Sync(), part.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.Rename(part.Name(), file); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
