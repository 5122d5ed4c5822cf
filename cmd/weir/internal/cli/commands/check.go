package commands

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/status"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkFormat is the output format of a check.
type checkFormat string

const (
	asText       checkFormat = "text"
	asNagios     checkFormat = "nagios"
	asPrometheus checkFormat = "prometheus"
)

// unknown returns the error of a check that could not be made. Its exit code is that of UNKNOWN.
func unknown(err error) error { return &cli.Exit{Code: int(status.Unknown), Err: err} }

func monitoringCommand() *cobra.Command {
	format, as, limits, ahead := string(asText), cli.ForPeople, checkLimits{}, checkAhead{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check weir for a monitoring system, by thresholds",
		Long: `Checks weir for Nagios, Icinga, Sensu and other monitors that run commands. Exit code 0 is OK, 1 WARNING, 2
CRITICAL and 3 UNKNOWN; wrong usage and a server that cannot be reached are UNKNOWN too. Every problem of
` + "`weir status`" + ` is critical. Its warnings are warnings: for example a budget or a quota that is used up while jobs wait.
Flags set thresholds for the unfinished jobs and the dead letters of an api, and for the used percentage of a quota or a
budget. A value that reaches a threshold counts.

--against 7d also plans from the jobs that the ledger and the letters recorded in the last 7 days, as
` + "`weir plan --since`" + ` does, and looks as far ahead by the growth of the whole days. For each api the check overflow
is a warning if jobs of a key would overflow, and names the first keys. It is UNKNOWN if no key overflows by the jobs
that were read, and there are more, or more jobs wait than a twentieth of the recorded ones; and if the plan fails.
What is critical stays CRITICAL. -f checks the limits of a file in place of the running configuration. For each api,
or all apis of an account, the check reads at most ` + strconv.Itoa(checkedRecords) + ` records, some 100,000 a second.

--format nagios prints one line with performance data. --format prometheus is for the textfile collector of the node
exporter.`,
		Example: "  weir check --format nagios --letters-warn 1 --letters-crit 100 --used-warn 80\n" +
			"  weir check --format prometheus > /var/lib/node_exporter/weir.prom",
		RunE: func(cmd *cobra.Command, args []string) error {
			thresholds, err := limits.thresholds(cmd.Flags())
			if err == nil {
				err = ahead.check()
			}
			switch checkFormat(format) {
			case asText, asNagios, asPrometheus:
			default:
				err = fmt.Errorf("--format %q is not text, nagios or prometheus", format)
			}
			if len(args) > 0 {
				err = errors.New("weir check takes no arguments")
			}
			if err != nil {
				return unknown(err)
			}
			return check(cmd, thresholds, &ahead, checkFormat(format), as)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unknown(err) })
	cmd.Flags().StringVar(&format, "format", format, "text, nagios or prometheus")
	limits.add(cmd.Flags())
	ahead.add(cmd.Flags())
	as.Add(cmd.Flags(), "one JSON object per line and check")
	return cmd
}

// checkLimits holds the values of the flags that set thresholds.
type checkLimits struct{ jobsWarn, jobsCrit, lettersWarn, lettersCrit, usedWarn, usedCrit float64 }

func (l *checkLimits) add(flags *pflag.FlagSet) {
	flags.Float64Var(&l.jobsWarn, "jobs-warn", 0, "WARNING from this many unfinished jobs of an api on")
	flags.Float64Var(&l.jobsCrit, "jobs-crit", 0, "CRITICAL from this many unfinished jobs of an api on")
	flags.Float64Var(&l.lettersWarn, "letters-warn", 0, "WARNING from this many dead letters of an api on")
	flags.Float64Var(&l.lettersCrit, "letters-crit", 0, "CRITICAL from this many dead letters of an api on")
	flags.Float64Var(&l.usedWarn, "used-warn", 0, "WARNING if this percentage of a quota or budget is used")
	flags.Float64Var(&l.usedCrit, "used-crit", 0, "CRITICAL if this percentage of a quota or budget is used")
}

// thresholds returns the thresholds whose flags were given. It fails if a given one is not above 0.
func (l *checkLimits) thresholds(flags *pflag.FlagSet) (t status.Thresholds, err error) {
	given := func(name string, value *float64) *float64 {
		if !flags.Changed(name) {
			return nil
		}
		if *value <= 0 {
			err = fmt.Errorf("--%s is above 0", name)
		}
		return value
	}
	t.Jobs = status.Threshold{Warn: given("jobs-warn", &l.jobsWarn), Crit: given("jobs-crit", &l.jobsCrit)}
	t.Letters = status.Threshold{Warn: given("letters-warn", &l.lettersWarn), Crit: given("letters-crit", &l.lettersCrit)}
	t.Used = status.Threshold{Warn: given("used-warn", &l.usedWarn), Crit: given("used-crit", &l.usedCrit)}
	return t, err
}

func check(cmd *cobra.Command, t status.Thresholds, ahead *checkAhead, format checkFormat, as cli.Format) error {
	var checks []status.Check
	err := connect.With(func(c *connect.Connection) error {
		s, err := status.Gather(cmd.Context(), c, 1, nil)
		if err == nil {
			checks = s.Checks(t)
		}
		if err == nil && ahead.against != "" {
			checks = append(checks, ahead.checks(cmd, c, s.APIs)...)
		}
		return err
	})
	out := cmd.OutOrStdout()
	if err != nil {
		if format == asNagios {
			_, _ = fmt.Fprintf(out, "WEIR UNKNOWN - %s\n", oneLine(err.Error()))
		}
		return unknown(err)
	}
	if err := printChecks(out, checks, format, as); err != nil {
		return unknown(err)
	}
	if worst := status.Worst(checks); worst != status.OK {
		return &cli.Exit{Code: int(worst)} // everything is already printed
	}
	return nil
}

func printChecks(out io.Writer, checks []status.Check, format checkFormat, as cli.Format) error {
	if as == cli.AsJSON {
		for i := range checks {
			if err := cli.PrintJSON(out, &checks[i]); err != nil {
				return err
			}
		}
		return nil
	}
	var text string
	switch format {
	case asNagios:
		text = nagiosText(checks)
	case asPrometheus:
		text = prometheusText(checks)
	case asText:
		t := &cli.Table{}
		for _, c := range checks {
			t.Row(c.Level.String(), c.Name, c.Text)
		}
		return t.PrintWhole(out)
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("write the checks: %w", err)
	}
	return nil
}

// nagiosText returns one line in the format of Nagios plugins: the state, the problems, and, after a bar, all values.
func nagiosText(checks []status.Check) string {
	var wrong, values []string
	for _, c := range checks {
		if c.Level != status.OK {
			wrong = append(wrong, oneLine(c.Text))
		}
		label, unit := c.Name, ""
		if c.Of != "" {
			label += "_" + c.Of
		}
		if c.Name == "used" {
			unit = "%"
		}
		values = append(values, fmt.Sprintf("'%s'=%s%s;%s;%s;0", strings.NewReplacer("'", "", "=", "").Replace(label),
			strconv.FormatFloat(c.Value, 'f', -1, 64), unit, thresholdText(c.Warn), thresholdText(c.Crit)))
	}
	said := strings.Join(wrong, "; ")
	if said == "" {
		said = cli.Count(len(checks), "check") + " in order"
	}
	return fmt.Sprintf("WEIR %s - %s | %s\n", status.Worst(checks), strings.ReplaceAll(said, "|", "/"), strings.Join(values, " "))
}

func thresholdText(t *float64) string {
	if t == nil {
		return ""
	}
	return strconv.FormatFloat(*t, 'f', -1, 64)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// prometheusText returns the checks as series in the text format of Prometheus.
func prometheusText(checks []status.Check) string {
	var levels, values strings.Builder
	for _, c := range checks {
		labels := fmt.Sprintf(`{check=%s,of=%s}`, strconv.Quote(c.Name), strconv.Quote(c.Of))
		_, _ = fmt.Fprintf(&levels, "weir_check_level%s %d\n", labels, c.Level)
		_, _ = fmt.Fprintf(&values, "weir_check_value%s %s\n", labels, strconv.FormatFloat(c.Value, 'f', -1, 64))
	}
	return "# HELP weir_check_level 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.\n# TYPE weir_check_level gauge\n" + levels.String() +
		"# HELP weir_check_value What was found.\n# TYPE weir_check_value gauge\n" + values.String()
}
