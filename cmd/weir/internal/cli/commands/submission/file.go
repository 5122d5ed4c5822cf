package submission

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/bulksubmit"
	"weir/cmd/weir/internal/serve/admin"
	"weir/ingest"

	"github.com/spf13/cobra"
)

// manyFlags are the flags of the command submit for a file of jobs.
type manyFlags struct {
	file       string
	journal    string
	again      bool
	reportFull bool
	failFast   bool
}

// defaultsOf returns the api, key and priority for lines of the file that do not name their own.
func defaultsOf(args []string, priority ingest.Priority) (d bulksubmit.Defaults) {
	d.Priority = priority
	if len(args) > 0 {
		d.API = args[0]
	}
	if len(args) > 1 {
		d.Key = args[1]
	}
	return d
}

// mostTold is how many lines are reported one by one as text. With --json all lines are reported.
const mostTold = 20

func (m *manyFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&m.file, "file", "", "`FILE` of jobs as JSON lines, - for stdin (\"weir help submission\" has the members)")
	flags.StringVar(&m.journal, "journal", "", "the journal of the accepted jobs of --file (default: the file's name and .journal)")
	flags.BoolVar(&m.again, "again", false, "empty the journal first: send every line, including those that an earlier run has sent")
	flags.BoolVar(&m.reportFull, "report-full", false, "report a job of --file whose bucket is full, instead of waiting for a place")
	flags.BoolVar(&m.failFast, "fail-fast", false, "end --file at the first line that is not accepted")
}

// onlyOfOne are the flags that apply only to a single job.
var onlyOfOne = []string{"data", "path", "method", "query", "header", "id", "deadline", "cost", "wait", "timeout"}

// check fails if flags for a single job are given with --file, or flags for a file without --file.
func (m *manyFlags) check(cmd *cobra.Command) error {
	if m.file == "" {
		for _, name := range []string{"journal", "again", "report-full", "fail-fast"} {
			if cmd.Flags().Changed(name) {
				return cli.Usage(fmt.Errorf("--%s goes with --file", name))
			}
		}
		return nil
	}
	for _, name := range onlyOfOne {
		if cmd.Flags().Changed(name) {
			return cli.Usage(fmt.Errorf("--%s is about one job: with --file say it in the lines", name))
		}
	}
	if m.file == "-" && m.again && m.journal == "" {
		return cli.Usage(errors.New("--again is about a journal: name one with --journal"))
	}
	return nil
}

// manyJobs is one run of submit --file.
type manyJobs struct {
	manyFlags
	name       string // name of the file in messages
	out        *bufio.Writer
	talk       io.Writer
	as         cli.Format
	told       int
	bar        *cli.ProgressBar
	total      int
	stop       context.CancelFunc // stops the run in order
	remembered time.Duration
}

// submitMany submits the jobs of a file and reports the outcomes.
func submitMany(cmd *cobra.Command, m manyFlags, d bulksubmit.Defaults, as cli.Format) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on, a second signal ends the process
	run := &manyJobs{manyFlags: m, name: m.file, out: bufio.NewWriter(cmd.OutOrStdout()), talk: cmd.ErrOrStderr(), as: as, stop: stop}
	in, closeFile, err := run.open(cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer closeFile()
	c, err := connect.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	current, known := admin.RunningConfig(cmd.Context(), c)
	o := bulksubmit.Options{
		Conn: c.Conn, Lines: bulksubmit.ReadLines(in, d), ReportFull: m.reportFull, Report: run.tell, Progress: run.show,
	}
	if known {
		o.Remembered = current.Dedupe
		o.Fit = func(job *ingest.Submission, hasBody bool) error { return fitTo(current, job, hasBody) }
		o.Room = func(api, key string) bulksubmit.Room { return roomOf(current, api, key) }
	}
	run.remembered = o.Remembered
	if o.Journal, err = run.openJournal(); err != nil {
		return err
	}
	run.bar = cli.NewProgressBar(run.talk, "handed in", run.total)
	tally, err := bulksubmit.Deliver(ctx, o)
	run.bar.Clear()
	err = errors.Join(err, o.Journal.Close(), run.out.Flush())
	return run.conclude(c, tally, err)
}

// open opens the file. If it is a regular file, open counts its lines for the progress bar.
func (m *manyJobs) open(stdin io.Reader) (in io.Reader, closeFile func(), err error) {
	if m.file == "-" {
		m.name = "stdin"
		return stdin, func() {}, nil
	}
	file, err := os.Open(m.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, cli.NotFound(fmt.Errorf("--file: %w", err))
	} else if err != nil {
		return nil, nil, cli.Usage(fmt.Errorf("--file: %w", err))
	}
	closeFile = func() { _ = file.Close() } // closing cannot fail: the file was only read
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		if m.total, err = countLines(file); err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err != nil {
			closeFile()
			return nil, nil, cli.Usage(fmt.Errorf("--file: %w", err))
		}
	}
	return file, closeFile, nil
}

func countLines(in io.Reader) (int, error) {
	part, n := make([]byte, 1<<16), 0
	for {
		size, err := in.Read(part)
		n += bytes.Count(part[:size], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return 0, err
		}
	}
}

// openJournal opens the run's journal. It returns nil if there is none: a run from stdin has a journal only if
// --journal names one.
func (m *manyJobs) openJournal() (*bulksubmit.Journal, error) {
	if m.journal == "" {
		if m.file == "-" {
			return nil, nil
		}
		m.journal = m.file + ".journal"
	}
	j, err := bulksubmit.OpenJournal(m.journal, m.again)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("%w (name another one with --journal)", err))
	}
	return j, nil
}

// fitTo makes a job ready for its api, by the running configuration.
func fitTo(current *config.Config, job *ingest.Submission, hasBody bool) error {
	api, found := current.API(job.API)
	if !found {
		return admin.NoAPI(job.API, current)
	}
	return bulksubmit.Fit(job, api, hasBody)
}

// roomOf returns how many jobs a run puts into a bucket: nine tenths of the bucket's capacity. The rest is for other
// producers and for errors of the estimate. A nearly full bucket drains as fast as a full one.
func roomOf(current *config.Config, name, key string) bulksubmit.Room {
	api, found := current.API(name)
	if !found {
		return bulksubmit.Room{}
	}
	limits := api.Rules.For(key)
	room := bulksubmit.Room{Capacity: limits.Capacity - limits.Capacity/10}
	if limits.Rate.Count > 0 {
		room.Interval = limits.Rate.Per/time.Duration(api.Rules.Lowered(limits.Rate.Count)) + api.Rules.Jitter
	}
	return room
}

// tell prints the outcome of one line. With --json it prints every line, otherwise only lines that failed.
func (m *manyJobs) tell(o bulksubmit.Outcome) error {
	failed := o.Verdict != bulksubmit.Taken && o.Verdict != bulksubmit.Known && o.Verdict != bulksubmit.Before
	if failed && m.failFast {
		m.stop()
	}
	if m.as == cli.AsJSON {
		return m.tellJSON(o)
	}
	if !failed {
		return nil
	}
	m.told++
	switch {
	case m.told > mostTold:
	case m.told == mostTold:
		m.bar.Clear()
		_, _ = fmt.Fprintf(m.talk, "%s: more lines cannot be taken; --json tells of each\n", m.name)
	default:
		m.bar.Clear()
		_, _ = fmt.Fprintf(m.talk, "%s:%d: %s\n", m.name, o.Line, cli.Visible(explainLine(o)))
	}
	return nil
}

// explainLine says why a line was not accepted.
func explainLine(o bulksubmit.Outcome) string {
	if o.Verdict == bulksubmit.Unsure {
		return fmt.Sprintf("job %s of %s/%s was sent at %s: %v. Look what became of it; to send it again write it to a file of its own", o.ID,
			o.API, o.Key, cli.ClockTime(o.At), o.Err)
	}
	return explainRefusal(o.Err).Error()
}

// lineJSON begins the output of a line with --json. weir's own answer follows.
type lineJSON struct {
	Line int    `json:"line"`
	API  string `json:"api,omitempty"`
}

// ownAnswer is the output of a line with --json if this run did not send the line, so that there is no answer of weir.
type ownAnswer struct {
	Line      int        `json:"line"`
	API       string     `json:"api,omitempty"`
	Job       string     `json:"job,omitempty"`
	Key       string     `json:"key,omitempty"`
	Duplicate bool       `json:"duplicate,omitempty"`
	SentAt    *time.Time `json:"sent_at,omitempty"` // when an earlier run sent the job
	Error     *ownError  `json:"error,omitempty"`
}

type ownError struct {
	Code        int    `json:"code,omitempty"`
	Description string `json:"description"`
}

func (m *manyJobs) tellJSON(o bulksubmit.Outcome) error {
	if o.Answer != nil {
		head, err := json.Marshal(lineJSON{o.Line, o.API})
		if err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
		_, err = fmt.Fprintf(m.out, "%s,%s\n", bytes.TrimSuffix(head, []byte("}")), bytes.TrimPrefix(bytes.TrimSpace(o.Answer), []byte("{")))
		return err
	}
	own := ownAnswer{Line: o.Line, API: o.API, Job: o.ID, Key: o.Key, Duplicate: o.Verdict == bulksubmit.Before}
	if !o.At.IsZero() {
		at := o.At.UTC()
		own.SentAt = &at
	}
	var coded *cli.Exit
	if o.Err != nil {
		own.Error = &ownError{Description: o.Err.Error()}
		switch {
		case errors.As(o.Err, &coded) && coded.Code == cli.ExitNotFound:
			own.Error.Code = 404
		case o.Verdict == bulksubmit.Bad:
			own.Error.Code = 400
		}
	}
	return cli.PrintJSON(m.out, own)
}

// show draws the progress bar, and flushes the answers to the output.
func (m *manyJobs) show(ended, waiting int) error {
	tail := ""
	if waiting > 0 {
		tail = ", " + cli.Count(waiting, "job") + " at hand"
	}
	m.bar.ShowWith(ended, tail)
	if err := m.out.Flush(); err != nil {
		return fmt.Errorf("write the answers: %w", err)
	}
	return nil
}

// conclude prints the summary. If the file is not done, it returns an error that says how to continue, with the exit
// code.
func (m *manyJobs) conclude(c *connect.Connection, t bulksubmit.Tally, err error) error {
	m.summary(t)
	goOn := "go on with the same command: what was taken is not sent again"
	if m.journal == "" {
		goOn = "go on with the same lines within " + cli.Brief(m.remembered) + ", for which weir knows the ids; later they would be new jobs (--journal has no such bound)"
		if m.remembered == 0 {
			goOn = "to go on send the same lines soon, while weir knows their ids (`dedupe`)"
		}
	}
	switch {
	case errors.Is(err, bulksubmit.ErrSilent):
		return cli.Unreachable(fmt.Errorf("at %s: %w: start `weir serve` with the role ingest, or set WEIR_NATS_URL to the server it uses; then %s", c.At, err, goOn))
	case err != nil:
		return fmt.Errorf("%w; %s", c.Explain(err), goOn)
	case t.Stopped:
		return fmt.Errorf("%s: ended before its last line; %s", m.name, goOn)
	}
	bad := t.Ended[bulksubmit.Bad] + t.Ended[bulksubmit.Refused] + t.Ended[bulksubmit.Unsure]
	full := t.Ended[bulksubmit.Full]
	switch {
	case bad > 0:
		return fmt.Errorf("%s: %s could not be taken", m.name, cli.Count(bad+full, "line"))
	case full > 0:
		return cli.Refused(fmt.Errorf("%s: %s throttled: the bucket was full, or the call would have come after the deadline", m.name, cli.Count(full, "job")))
	}
	return nil
}

// summary prints how many lines had each outcome.
func (m *manyJobs) summary(t bulksubmit.Tally) {
	lines := 0
	for _, n := range t.Ended {
		lines += n
	}
	var parts []string
	for _, p := range []struct {
		verdict bulksubmit.Verdict
		text    string
	}{
		{bulksubmit.Taken, "taken"},
		{bulksubmit.Known, "known already"},
		{bulksubmit.Before, "taken by an earlier run"},
		{bulksubmit.Full, "throttled"},
		{bulksubmit.Refused, "refused"},
		{bulksubmit.Bad, "not sent"},
		{bulksubmit.Unsure, "unsure"},
	} {
		if n := t.Ended[p.verdict]; n > 0 || p.verdict == bulksubmit.Taken {
			parts = append(parts, fmt.Sprintf("%d %s", n, p.text))
		}
	}
	if t.Unsettle > 0 {
		parts = append(parts, fmt.Sprintf("%d without an answer yet", t.Unsettle))
	}
	_, _ = fmt.Fprintf(m.talk, "weir: %s: %s: %s\n", m.name, cli.Count(lines, "line"), strings.Join(parts, ", "))
}
