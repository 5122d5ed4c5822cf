package main

import (
	"encoding/json"
	"errors"
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

// reportFile has the whole report of a plan that broke a promise.
const reportFile = "report.txt"

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
		if err := settle(one.Dir, r); err != nil {
			return err
		}
		if err != nil || !r.Kept() {
			bad++
		}
		if err := g.printRow(out, r, one.Seed, err); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d plans broke a promise or failed; reports, ledgers, receipts and logs are in %s", bad, g.plans, dir)
	}
	if g.keep == "" {
		return os.RemoveAll(dir)
	}
	return nil
}

// settle removes the directory of a plan that kept every promise. If the plan broke one, it writes the report there.
func settle(dir string, r *judge.Report) error {
	switch {
	case r == nil:
		return nil
	case r.Kept():
		return os.RemoveAll(dir)
	}
	file, err := os.Create(filepath.Join(dir, reportFile))
	if err != nil {
		return err
	}
	return errors.Join(r.Print(file), file.Close())
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
