package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Serve runs the fake api as a process of its own until ctx ends. Once it listens it prints one line, "listening http://…", to
// opts.Announce. It returns nil after an orderly end, or the first failure to write the ledger.
func Serve(ctx context.Context, opts Options) error {
	a, err := Start(opts)
	if err != nil {
		return err
	}
	var out io.Writer = os.Stdout
	if opts.Announce != nil {
		out = opts.Announce
	}
	if _, err := fmt.Fprintf(out, "listening %s\n", a.URL()); err != nil {
		return errors.Join(fmt.Errorf("fakeapi: announce: %w", err), a.Close())
	}
	<-ctx.Done()
	return a.Close()
}
