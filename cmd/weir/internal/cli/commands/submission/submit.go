// Package submission has the command submit: for one job, and for those of a file.
package submission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/bulksubmit"
	"weir/cmd/weir/internal/serve/admin"
	"weir/ingest"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
)

// submitFlags are the flags of the command submit for one job.
type submitFlags struct {
	api, key                    string
	data                        string
	path, method, query, id     string
	headers                     []string
	deadline, notBefore         string
	priority                    string
	cost                        int64
	wait                        bool
	as                          cli.Format
	timeout                     time.Duration
	dataGiven, costGiven, gotID bool
}

// submitTimeout is how long the command waits for a receipt. The intake itself waits for the store.
const submitTimeout = 15 * time.Second

// Command returns the command submit.
func Command() *cobra.Command {
	f, many := submitFlags{timeout: time.Minute}, manyFlags{}
	cmd := &cobra.Command{
		Use:   "submit API KEY",
		Short: "Submit one job, or those of a file",
		Long: `Submits one job as any producer does, and prints its receipt: where it is stored, how many jobs of its key are
ahead of it, and when its call should start.

KEY may be any text. If the api takes the key from a header or from the body, the command puts it there. With --wait the
result's body goes to stdout as the api sent it, and everything else to stderr.

Exit code 1: the job became a dead letter, its result did not arrive within --timeout, or a stream answered in weir's
place. 4: the job was throttled. 2: it is malformed. 3: there is no such api. 5: no replica accepts jobs.

With --file the command submits many jobs: one JSON object per line, for which API and KEY are the defaults. A job whose
bucket is full waits for a place. The command reports a wrong line by its number and goes on. The same command continues
a run that was ended or killed: accepted jobs are in the journal beside the file and are not sent again. Exit code 1:
some lines were not accepted. 4: with --report-full, some jobs were throttled.`,
		Example: `  weir submit credit-check vip-1 --data '{"customer":17}'
  weir submit credit-check "Zoë & Sons" --data @order.json --header 'Content-Type: application/json' --wait
  generate | weir submit sms tenant.42 --data - --deadline 5m --json
  weir submit --file jobs.jsonl --json > receipts.jsonl
  generate | weir submit sms --file -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if many.file != "" {
				return cli.Takes("[API]", "[KEY]")(cmd, args)
			}
			return cli.Takes("API", "KEY")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := many.check(cmd); err != nil {
				return err
			}
			priority, err := ingest.ParsePriority(f.priority)
			if err != nil {
				return cli.Usage(fmt.Errorf("--priority %.20q: %w", f.priority, err))
			}
			if many.file != "" {
				return submitMany(cmd, many, defaultsOf(args, priority), f.as)
			}
			f.api, f.key = args[0], args[1]
			f.dataGiven, f.costGiven, f.gotID = cmd.Flags().Changed("data"), cmd.Flags().Changed("cost"), f.id != ""
			return submit(cmd, &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "the body: a text, @FILE, or - for stdin")
	flags.StringVar(&f.path, "path", "", "path below the api's url")
	flags.StringVar(&f.method, "method", "", "HTTP method, one of the api's (default: the first)")
	flags.StringVar(&f.query, "query", "", "query string, without ?")
	flags.StringArrayVar(&f.headers, "header", nil, "'Name: value' for the api; may be repeated")
	flags.StringVar(&f.id, "id", "", "the job's id; the same id again is the same job (default: a new id)")
	flags.StringVar(&f.deadline, "deadline", "", "do not call after: an RFC 3339 time, or a duration such as 30s or 2h")
	flags.StringVar(&f.notBefore, "not-before", "", "do not call before: an RFC 3339 time, or a duration such as 30s or 7d; at most 366 days")
	flags.StringVar(&f.priority, "priority", ingest.Normal.String(), "high, normal or low; with --file of lines that say none")
	flags.Int64Var(&f.cost, "cost", 1, "units that the job takes from weighted limits")
	flags.BoolVar(&f.wait, "wait", false, "wait for the result")
	flags.DurationVar(&f.timeout, "timeout", f.timeout, "how long to wait for the result")
	f.as.Add(flags, "print weir's raw answer, and the result as one JSON object; with --file one answer per line")
	many.add(cmd)
	return cmd
}

// submit submits one job and waits for the job's receipt and, with --wait, its result.
func submit(cmd *cobra.Command, f *submitFlags) error {
	if err := admin.CheckAPIName(f.api); err != nil {
		return err
	}
	s, err := f.submission(cmd.InOrStdin())
	if err != nil {
		return cli.Usage(err)
	}
	c, err := connect.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if current, ok := admin.RunningConfig(cmd.Context(), c); ok {
		api, found := current.API(f.api)
		if !found {
			return admin.ExplainNoAPI(cmd.Context(), c, f.api, current) // an unknown api's job would become a letter
		}
		if err := bulksubmit.Fit(&s, api, f.dataGiven); err != nil {
			return cli.Usage(err)
		}
	}
	var results *nats.Subscription
	if f.wait {
		s.ReplyTo = ingest.EndsInbox(c.Conn.NewInbox())
		if results, err = c.Conn.SubscribeSync(s.ReplyTo); err != nil {
			return c.Explain(err)
		}
	}
	receipt, err := sendJob(c, cmd, f, s)
	if err != nil || !f.wait {
		return err
	}
	return f.awaitResult(cmd, results, receipt)
}

// submission returns the job that the flags describe, without the parts that depend on the api's configuration.
func (f *submitFlags) submission(stdin io.Reader) (ingest.Submission, error) {
	s := ingest.Submission{
		API: f.api, Key: f.key, ID: f.id, Method: f.method, Path: f.path, Query: f.query, JobHeader: nats.Header{},
	}
	if !f.gotID {
		s.ID = uuid.Must(uuid.NewV7()).String()
	}
	if err := ingest.CheckKey(f.key); err != nil {
		return s, err
	}
	if f.costGiven {
		if f.cost < 1 {
			return s, fmt.Errorf("--cost %d is not a whole number from 1", f.cost)
		}
		s.Cost = f.cost
	}
	s.Priority, _ = ingest.ParsePriority(f.priority)
	if f.deadline != "" {
		at, err := time.Parse(time.RFC3339Nano, f.deadline)
		if err == nil {
			s.Deadline = at
		} else if s.Within, err = grammar.ParseDuration(f.deadline); err != nil || s.Within == 0 {
			return s, fmt.Errorf("--deadline %q is neither an RFC 3339 time nor a duration like 30s", f.deadline)
		}
	}
	if f.notBefore != "" {
		at, err := time.Parse(time.RFC3339Nano, f.notBefore)
		if err == nil {
			s.NotBefore = at
		} else if s.Delay, err = grammar.ParseDuration(f.notBefore); err != nil {
			return s, fmt.Errorf("--not-before %q is neither an RFC 3339 time nor a duration like 30s or 7d", f.notBefore)
		}
	}
	for _, text := range f.headers {
		name, value, ok := strings.Cut(text, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return s, fmt.Errorf("--header %q is not 'Name: value'", text)
		}
		s.Header = append(s.Header, ingest.HeaderField{Name: name, Value: strings.TrimSpace(value)})
	}
	var err error
	s.Body, err = cli.ReadData(f.data, stdin)
	return s, err
}

// sendJob sends the job and prints the outcome.
func sendJob(c *connect.Connection, cmd *cobra.Command, f *submitFlags, s ingest.Submission) (*ingest.Receipt, error) {
	msg, err := s.Message()
	if err != nil {
		return nil, cli.Usage(err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), submitTimeout)
	defer cancel()
	answer, err := c.Conn.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, cli.Unreachable(fmt.Errorf("no replica accepts jobs at %s: start `weir serve` with the role ingest, or set WEIR_NATS_URL to the server it uses", c.At))
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, cli.Usage(fmt.Errorf("the job is larger than the server's limit of %d bytes: %w", c.Conn.MaxPayload(), err))
	case c.Denied.Any():
		return nil, c.Explain(err)
	case err != nil:
		return nil, cli.Unreachable(fmt.Errorf("no answer (%w): the job may have been accepted; submit it again with --id %s", err, s.ID))
	}
	receipt, err := ingest.ParseAnswer(answer.Data)
	var foreign *ingest.ForeignAnswer
	if errors.As(err, &foreign) {
		return nil, fmt.Errorf("%s: either no weir runs at %s, or its own answer came too late to be heard. Change the stream's subjects or remove it, then submit the job again with --id %s",
			cli.Visible(foreign.Error()), c.At, s.ID)
	}
	if f.as == cli.AsJSON {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", answer.Data); err != nil {
			return nil, fmt.Errorf("write the answer: %w", err)
		}
	}
	if err != nil {
		return nil, explainRefusal(err)
	}
	if f.as == cli.ForPeople {
		out := cmd.OutOrStdout()
		if f.wait {
			out = cmd.ErrOrStderr() // stdout is for the result only
		}
		return &receipt, printReceipt(out, &receipt, time.Now())
	}
	return &receipt, nil
}

// explainRefusal returns a refusal as an error with an exit code.
func explainRefusal(err error) error {
	var r *ingest.Refusal
	if !errors.As(err, &r) {
		return err
	}
	text := fmt.Sprintf("refused with %d: %s", int(r.Code)%1000, r.Description)
	if r.LetterSeq > 0 {
		text += fmt.Sprintf("; kept as dead letter %d (weir dead show %d)", r.LetterSeq, r.LetterSeq)
	}
	err = errors.New(text)
	switch r.Code {
	case ingest.Throttled:
		return cli.Refused(err)
	case ingest.UnknownAPI:
		return cli.NotFound(err)
	case ingest.Invalid, ingest.TooLarge:
		return cli.Usage(err)
	}
	return err
}

func printReceipt(out io.Writer, r *ingest.Receipt, now time.Time) error {
	t := &cli.Table{}
	t.Row("job", r.Job)
	t.Row("key", r.Key)
	stored := r.Stream
	if r.Seq > 0 {
		stored += fmt.Sprintf(" %d", r.Seq)
	}
	t.Row("stored", stored)
	switch {
	case r.Duplicate && r.Position == 0:
		t.Row("position", "none: the job was known already and has ended")
	case r.Duplicate:
		t.Row("position", fmt.Sprintf("%d (the job was known already)", r.Position))
	default:
		t.Row("position", fmt.Sprint(r.Position))
	}
	if !r.ETA.IsZero() {
		t.Row("call", "at "+cli.ClockTime(r.ETA)+", in "+cli.Brief(r.ETA.Sub(now)))
	}
	return t.Print(out)
}
