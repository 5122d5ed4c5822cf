package fakeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Serve runs the fake api as a process of its own until ctx ends. When it listens, it prints the line "listening
// http://…" to opts.Announce. After an orderly end, an api with Limits prints the line "windows [...]": the Verdict on
// each limit, by the arrivals in memory. Serve returns the first failed write of the ledger, or nil.
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
	if err := a.Close(); err != nil || len(opts.Limits) == 0 {
		return err
	}
	verdict, err := json.Marshal(Windows(a.All(), opts.Limits...))
	if err == nil {
		_, err = fmt.Fprintf(out, "windows %s\n", verdict)
	}
	return err
}
