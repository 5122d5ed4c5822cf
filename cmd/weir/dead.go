package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/deadletter"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at the dead letters, redrive, purge or export them",
		Long: `Looks at the dead letters, redrives, purges or exports them: jobs that will not be called again unless somebody redrives
them. They are read straight from the stream WEIR_DEAD, whether or not a weir runs; a redrive needs one.`,
		Example: "  weir dead ls --api credit-check --since 2h\n  weir dead show 17\n  weir dead redrive --reason overflow --dry-run",
		RunE:    group,
	}
	cmd.AddCommand(deadListCommand(), deadShowCommand(), deadStatsCommand(), deadTailCommand(), deadRedriveCommand(), deadReconcileCommand(),
		deadPurgeCommand(), deadExportCommand(), deadTasksCommand(), deadTaskCommand(), deadStopCommand(), deadResumeCommand())
	return cmd
}

// group is what a command does that only has subcommands.
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return wrongCommand(cmd, args[0])
	}
	return cmd.Help()
}

// letterFlags are the flags that choose letters.
type letterFlags struct{ api, key, reason, since, until, status, job string }

func (f *letterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.api, "api", "", "only of this api; _ for jobs of unknown apis")
	flags.StringVar(&f.key, "key", "", "only of this key")
	flags.StringVar(&f.reason, "reason", "", "only with this reason: "+reasonNames())
	flags.StringVar(&f.since, "since", "", "only from this RFC 3339 time on, or from this long ago, as in 2h or 1d")
	flags.StringVar(&f.until, "until", "", "only before this time, or until this long ago")
	flags.StringVar(&f.status, "status", "", "only with this last answer, as in 503 or 5xx; 0 for none")
}

func reasonNames() string {
	var names []string
	for _, r := range deadletter.Reasons() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// filter reads the flags.
func (f *letterFlags) filter(now time.Time) (deadletter.Filter, error) {
	filter := deadletter.Filter{API: f.api, Key: f.key, Reason: deadletter.Reason(f.reason), Job: f.job}
	if f.reason != "" && !slices.Contains(deadletter.Reasons(), filter.Reason) {
		return filter, cli.Usage(fmt.Errorf("--reason %q: the reasons are %s", f.reason, reasonNames()))
	}
	var err error
	if filter.Since, err = readTime(f.since, now); err != nil {
		return filter, cli.Usage(fmt.Errorf("--since %w", err))
	}
	if filter.Until, err = readTime(f.until, now); err != nil {
		return filter, cli.Usage(fmt.Errorf("--until %w", err))
	}
	if filter.Status, err = readStatus(f.status); err != nil {
		return filter, cli.Usage(err)
	}
	return filter, nil
}

// selection reads the flags, and the numbers of letters that stand in their place.
func (f *letterFlags) selection(args []string, now time.Time) (deadletter.Selection, error) {
	if len(args) == 0 {
		filter, err := f.filter(now)
		return deadletter.Selection{Filter: filter}, err
	}
	if *f != (letterFlags{}) {
		return deadletter.Selection{}, cli.Usage(errors.New("name letters by their numbers or choose them by flags, not both"))
	}
	var s deadletter.Selection
	for _, arg := range args {
		seq, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || seq == 0 {
			return s, cli.Usage(fmt.Errorf("%q is not the number of a dead letter; `weir dead ls` lists them", arg))
		}
		s.Seqs = append(s.Seqs, seq)
	}
	return s, nil
}

// String says which letters are meant, for the notification.
func (f *letterFlags) String() string {
	var parts []string
	for _, part := range [][2]string{
		{"api", f.api}, {"key", f.key}, {"reason", f.reason}, {"since", f.since}, {"until", f.until}, {"status", f.status},
	} {
		if part[1] != "" {
			parts = append(parts, part[0]+"="+part[1])
		}
	}
	return strings.Join(parts, " ")
}

// scopeOf ends a selection at the letters that are there now.
func scopeOf(ctx context.Context, c *connect.Connection, b *deadletter.Browser, s deadletter.Selection) (*deadletter.Scope, error) {
	scope, err := b.Scope(ctx, s)
	var missing *deadletter.MissingError
	if errors.As(err, &missing) {
		return nil, cli.NotFound(err)
	}
	return scope, c.Explain(err)
}

// readTime reads a point in time, or how long ago it was; zero for no text.
func readTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	ago, err := config.ParseDuration(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither an RFC 3339 time such as %s nor a duration such as 2h or 1d", text, now.UTC().Format(time.RFC3339))
	}
	return now.Add(-ago), nil
}

// noAnswer is the range of letters without an answer: no other letter has a status below 1.
var noAnswer = deadletter.StatusRange{From: -1, To: 0}

func readStatus(text string) (deadletter.StatusRange, error) {
	wrong := fmt.Errorf("--status %q is not a status such as 503, a class from 1xx to 5xx, or 0", text)
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok {
		n, err := strconv.Atoi(class)
		if err != nil || n < 1 || n > 5 {
			return deadletter.StatusRange{}, wrong
		}
		return deadletter.StatusRange{From: n * 100, To: n*100 + 99}, nil
	}
	if text == "" {
		return deadletter.StatusRange{}, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0 || n > 999:
		return deadletter.StatusRange{}, wrong
	case n == 0:
		return noAnswer, nil
	}
	return deadletter.StatusRange{From: n, To: n}, nil
}

// browse opens the letters.
func browse(ctx context.Context, c *connect.Connection) (*deadletter.Browser, error) {
	b, err := deadletter.OpenBrowser(ctx, c.JetStream)
	if errors.Is(err, deadletter.ErrNoStream) {
		return nil, cli.NotFound(err)
	}
	return b, c.Explain(err)
}

// withLetters opens the letters for a command that may take long: a signal ends its context.
func withLetters(cmd *cobra.Command, do func(ctx context.Context, c *connect.Connection, b *deadletter.Browser) error) error {
	return connect.With(func(c *connect.Connection) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		b, err := browse(ctx, c)
		if err != nil {
			return err
		}
		return do(ctx, c, b)
	})
}

// letterJSON is a letter as --json prints it.
type letterJSON struct {
	Seq      uint64              `json:"seq"`
	Stored   time.Time           `json:"stored"`
	API      string              `json:"api"`
	AskedAPI string              `json:"asked_api,omitempty"` // where api is "": the name that its producer asked for
	Key      string              `json:"key"`
	Job      string              `json:"job"`
	Reason   deadletter.Reason   `json:"reason"`
	Detail   string              `json:"detail"`
	Status   int                 `json:"status"`
	Billed   deadletter.Billed   `json:"billed"`
	Attempts int                 `json:"attempts"`
	Redrives int                 `json:"redrives"`
	Refusals int                 `json:"refusals,omitempty"` // where the job was refused more than once: how often, when the letter was written
	Size     int                 `json:"size"`               // of the body
	Headers  map[string][]string `json:"headers,omitempty"`
	Answer   *answerJSON         `json:"answer,omitempty"`
	Call     *callJSON           `json:"call,omitempty"` // the job's last that was sent
	bodyJSON
}

func letterAsJSON(k *deadletter.Kept) letterJSON {
	return letterJSON{
		Seq: k.Seq, Stored: k.Stored.UTC(), API: k.API, AskedAPI: k.AskedAPI, Key: k.Key, Job: k.JobID, Reason: k.Reason, Detail: k.Detail,
		Status: k.Status, Billed: k.Billed, Attempts: k.Attempts, Redrives: k.Redrives, Refusals: k.Refusals, Size: k.Size,
	}
}

// jobHeaders are the headers that the job brought: those of the letter are told otherwise.
func jobHeaders(h nats.Header) map[string][]string {
	own := map[string][]string{}
	for name, values := range h {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "weir-dead-") && !deadletter.OfAnswer(name) && !strings.HasPrefix(lower, "nats-") && name != ingest.HeaderAPI &&
			name != ingest.HeaderKey && name != ingest.HeaderJobID && name != ingest.HeaderRedrives {
			own[name] = values
		}
	}
	return own
}

// letterRow is a letter as one row of a table.
func letterRow(k *deadletter.Kept, when string) []string {
	status := "-"
	if k.Status > 0 {
		status = strconv.Itoa(k.Status)
	}
	return []string{strconv.FormatUint(k.Seq, 10), when, orDash(k.API), orDash(k.Key), string(k.Reason), status, string(k.Billed), k.Detail}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
