package commands

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/outlook"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Bounds of what a check reads for each api. Without them a monitor might give the check up before it ends.
const (
	checkedRecords = 200_000
	checkedLetters = 100_000
	checkedKeys    = 50_000
)

// checkAhead holds the flags of the check that says which keys would overflow next.
type checkAhead struct{ against, file string }

func (a *checkAhead) add(flags *pflag.FlagSet) {
	flags.StringVar(&a.against, "against", "", "WARNING if keys overflow next, by the jobs of this long ago until now, such as 7d")
	flags.StringVarP(&a.file, "file", "f", "", "with --against: the limits of this configuration file")
}

// check returns what is wrong with the flags.
func (a *checkAhead) check() error {
	switch {
	case a.against == "" && a.file != "":
		return errors.New("-f needs --against: it has the limits to hold the recorded jobs against")
	case a.against == "":
		return nil
	}
	span, err := grammar.ParseDuration(a.against)
	if err != nil {
		return fmt.Errorf("--against: %w", err)
	}
	if span <= 0 {
		return fmt.Errorf("--against %s is not above 0s", a.against)
	}
	return nil
}

// checks returns one check for each api, which says whether keys would overflow next. present has the number of each
// api's waiting jobs. If the outlook cannot be made, the last check says why.
func (a *checkAhead) checks(cmd *cobra.Command, c *connect.Connection, present []*status.API) (checks []status.Check) {
	waiting := map[string]int{}
	for _, api := range present {
		waiting[api.API] = api.Waiting()
	}
	next, err := a.next(cmd, c)
	for i := range next {
		next[i].Queued = waiting[next[i].API]
		checks = append(checks, checkOf(&next[i], a.against))
	}
	if err != nil {
		checks = append(checks, status.Check{Name: "overflow", Level: status.Unknown, Text: "not known whether keys overflow next: " + oneLine(err.Error())})
	}
	return checks
}

func (a *checkAhead) next(cmd *cobra.Command, c *connect.Connection) ([]outlook.Overflows, error) {
	span, err := grammar.ParseDuration(a.against)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	q := outlook.Question{
		Since: now.Add(-span), Now: now, Most: outlook.Bounds{Records: checkedRecords, Letters: checkedLetters, Keys: checkedKeys},
	}
	if a.file != "" {
		if q.Config, err = admin.ReadConfig(a.file); err != nil {
			return nil, err
		}
	}
	return outlook.Next(cmd.Context(), c, q, span)
}

// checkOf returns the check of one api.
func checkOf(n *outlook.Overflows, against string) status.Check {
	found := status.Check{Name: "overflow", Of: n.API, Value: float64(len(n.Overflowing) + n.More)}
	after := ""
	if n.Load > 1 {
		after = fmt.Sprintf(" with %.3g times as many jobs, by the growth of %s", n.Tried, cli.Count(n.Days, "whole day"))
	}
	notes := ""
	for _, note := range n.Notes("name a shorter --against") {
		notes += "; " + note
	}
	if len(n.Overflowing) == 0 {
		found.Text = fmt.Sprintf("%s: no key overflows by the jobs of %s%s%s", n.API, against, after, notes)
		if !n.Whole() {
			found.Level = status.Unknown
			found.Text = fmt.Sprintf("%s: not known whether keys overflow by the jobs of %s%s%s", n.API, against, after, notes)
		}
		return found
	}
	var keys []string
	for _, k := range n.Overflowing {
		keys = append(keys, fmt.Sprintf("%s (%d of %s)", cli.Visible(k.Key), k.Overflowed, cli.Count(k.Jobs, "job")))
	}
	if n.More > 0 {
		keys = append(keys, cli.Count(n.More, "more key"))
	}
	found.Level = status.Warning
	of := "--api " + n.API
	if n.Account != "" {
		of = "--account " + n.Account
	}
	found.Text = fmt.Sprintf("%s: keys overflow next by the jobs of %s%s: %s; weir plan %s --since %s says what is enough%s",
		n.API, against, after, strings.Join(keys, ", "), of, against, notes)
	return found
}
