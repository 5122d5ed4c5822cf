package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
	"weir/cmd/weir-torture/internal/torture"
)

// inARow runs plans with successive seeds, one after the other, and prints a line for each. It goes on after a broken
// promise and after a run that failed, and removes what a run wrote if every promise was kept.
func (g *flags) inARow(cmd *cobra.Command, o plan.Options) error {
	dir, err := tortureDir(g.keep)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !g.json {
		if _, err := io.WriteString(out, judge.TableHead); err != nil {
			return err
		}
	}
	bad := 0
	for n := range g.plans {
		one := o
		one.Seed += uint64(n)
		one.Dir = filepath.Join(dir, fmt.Sprintf("seed-%d", one.Seed))
		if err := os.Mkdir(one.Dir, 0o700); err != nil {
			return fmt.Errorf("make a directory: %w", err)
		}
		r, err := torture.Run(cmd.Context(), one)
		if cmd.Context().Err() != nil {
			return fmt.Errorf("ended in the plan with seed %d; logs are in %s", one.Seed, one.Dir)
		}
		if err != nil || !r.Kept() {
			bad++
		} else if err := os.RemoveAll(one.Dir); err != nil {
			return err
		}
		if err := g.printRow(out, r, one.Seed, err); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d plans broke a promise or failed; ledgers, receipts and logs are in %s", bad, g.plans, dir)
	}
	if g.keep == "" {
		return os.RemoveAll(dir)
	}
	return nil
}

// printRow prints the report of a plan, or why there is none.
func (g *flags) printRow(out io.Writer, r *judge.Report, seed uint64, failed error) error {
	switch {
	case r == nil && g.json:
		return json.NewEncoder(out).Encode(map[string]any{"seed": seed, "failed": failed.Error()})
	case g.json:
		return json.NewEncoder(out).Encode(r)
	case r == nil:
		why, _, _ := strings.Cut(failed.Error(), "\n")
		_, err := fmt.Fprintf(out, "| %d | | | | | | | | | | failed: %s |\n", seed, why)
		return err
	}
	_, err := io.WriteString(out, r.Row())
	return err
}
