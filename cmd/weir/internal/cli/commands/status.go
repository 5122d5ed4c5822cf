package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
)

func statusCommand() *cobra.Command {
	limit, as := 20, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show on one screen whether weir is healthy, and what is wrong",
		Long: `Shows on one screen whether weir is healthy, what is wrong and what to do. Then it lists the apis; what is
paused or held and until when, including keys without jobs; how much of each limit is used; what was spent today by the
ledger; how many dead letters there are of each cause; how far callbacks are behind; and the replicas that dispatch.

It also shows pauses, apis that push back, and budgets that are used up, which are not problems. A budget or a quota that
is used up while jobs wait is a warning, and so is a callback whose receiver accepts no post. Exit code 0: healthy,
maybe with warnings, 1: not healthy, 5: the server cannot be reached.`,
		Example: "  weir status\n  weir status --json | jq .problems",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := admin.CheckLimit(limit); err != nil {
				return err
			}
			return connect.With(func(c *connect.Connection) error {
				s, err := gatherStatus(cmd.Context(), c, cmd.ErrOrStderr(), limit)
				if err != nil {
					return err
				}
				if as == cli.AsJSON {
					err = cli.PrintJSON(cmd.OutOrStdout(), s)
				} else {
					err = printStatus(cmd.OutOrStdout(), s)
				}
				if err == nil && !s.Healthy {
					err = &cli.Exit{Code: cli.ExitFailed} // everything is already printed
				}
				return err
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "how many paused and held keys of each api to list")
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// spentWait bounds how long the command waits for a replica's answer about today's spending.
const spentWait = 5 * time.Second

var errUnfinished = errors.New("the replica still reads the ledger; ask again in a moment")

// gatherStatus returns the status. It includes what was spent today if a replica tells that in time. It asks about the
// spending first, so that the budgets count every call that is in the spending.
func gatherStatus(ctx context.Context, c *connect.Connection, talk io.Writer, limit int) (*status.Status, error) {
	asking, cancel := context.WithTimeout(ctx, spentWait)
	defer cancel()
	today, unknown := spentToday(asking, c)
	s, err := status.Gather(ctx, c, limit, nil)
	if err != nil {
		return nil, err
	}
	if s.AddSpent(today); unknown == nil && today.Unfinished() {
		unknown = errUnfinished
	}
	if unknown != nil && len(s.Replicas) > 0 {
		_, _ = fmt.Fprintf(talk, "weir: what was spent today is not known: %v\n", unknown)
	}
	return s, nil
}

// spentToday returns what was spent today. A replica that has just started may still read the ledger. spentToday then
// asks again, until ctx ends.
func spentToday(ctx context.Context, c *connect.Connection) (today *spend.Account, err error) {
	for {
		now, err := admin.Spent(ctx, c, admin.SpentQuestion{})
		if err != nil && today != nil {
			return today, nil //nolint:nilerr // the answer before is the last one
		}
		if today = now; err != nil || !today.Unfinished() {
			return today, err
		}
	}
}

func printStatus(out io.Writer, s *status.Status) error {
	how := "healthy"
	if !s.Healthy {
		how = "NOT healthy: " + cli.Count(len(s.Problems), "problem")
	}
	if len(s.Warnings) > 0 {
		how += ", with " + cli.Count(len(s.Warnings), "warning")
	}
	t := &cli.Table{}
	t.Row(fmt.Sprintf("weir at %s is %s", s.Server, how))
	for _, p := range slices.Concat(s.Problems, s.Warnings) {
		t.Row("  ! " + p.What)
		t.Row("    " + p.Fix)
	}
	if err := t.PrintWhole(out); err != nil {
		return err
	}
	for _, part := range []func(*cli.Table, *status.Status){
		apisPart, operationsPart, stopsPart, reusePart, limitsPart, lettersPart, callbacksPart, replicasPart, ownersPart,
	} {
		part(t, s)
		if t.Size() < 2 {
			*t = cli.Table{}
			continue
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return fmt.Errorf("write the status: %w", err)
		}
		if err := t.Print(out); err != nil {
			return err
		}
	}
	return nil
}

func apisPart(t *cli.Table, s *status.Status) {
	t.Row("API", "JOBS", "KEYS", "IN FLIGHT", "SPENT TODAY", "IN DOUBT", "PARTITIONS", "CALLED")
	for _, a := range s.APIs {
		t.Row(a.API, strconv.Itoa(a.Jobs), strconv.Itoa(a.Keys), strconv.Itoa(a.InFlight), cmp.Or(a.Spent, "-"), cmp.Or(a.InDoubt, "-"),
			fmt.Sprintf("%d/%d", a.Owned, a.Partitions), calledText(a))
	}
}

// operationsPart adds the operations on which the apis are still working.
func operationsPart(t *cli.Table, s *status.Status) {
	t.Row("OPERATIONS", "UNDER WAY", "OLDEST", "POLLS")
	for _, a := range s.APIs {
		o := a.Operations
		if o == nil {
			continue
		}
		oldest := "-"
		if !o.Oldest.IsZero() {
			oldest = cli.Brief(s.At.Sub(o.Oldest))
		}
		polls := "answered"
		if o.SilentMS > 0 {
			polls = "say nothing for " + cli.Brief(time.Duration(o.SilentMS)*time.Millisecond)
		}
		t.Row(a.API, strconv.Itoa(o.UnderWay), oldest, polls)
	}
}

// calledText says whether weir calls an api, and how many of the api's keys it does not call.
func calledText(a *status.API) string {
	var parts []string
	switch {
	case a.Pause != nil:
		parts = append(parts, "paused")
	case len(a.Holds) > 0 && a.Holds[0].Key == "":
		parts = append(parts, "held")
	default:
		parts = append(parts, "yes")
	}
	if a.PausedKeys > 0 {
		parts = append(parts, cli.Count(a.PausedKeys, "key")+" paused")
	}
	if a.HeldKeys > 0 {
		parts = append(parts, cli.Count(a.HeldKeys, "key")+" held")
	}
	return strings.Join(parts, ", ")
}

// stopsPart adds pauses and holds.
func stopsPart(t *cli.Table, s *status.Status) {
	t.Row("NOT CALLED", "UNTIL", "WHY")
	until := func(at time.Time) string {
		if at.IsZero() {
			return "`weir resume`"
		}
		return cli.ClockTime(at)
	}
	for _, a := range s.APIs {
		if a.Pause != nil {
			t.Row(a.API, until(a.Pause.Until), a.Pause.String())
		}
		for _, p := range a.Pauses {
			t.Row(a.API+"/"+p.Key, until(p.Until), p.String())
		}
		if more := a.PausedKeys - len(a.Pauses); more > 0 {
			t.Row(fmt.Sprintf("%s: %d more paused", a.API, more), "", "--limit lists more")
		}
		keys := 0
		for _, h := range a.Holds {
			if name := a.API; h.Key != "" {
				keys++
				t.Row(name+"/"+h.Key, until(h.Until), h.Why)
			} else {
				t.Row(name, until(h.Until), h.Why)
			}
		}
		if more := a.HeldKeys - keys; more > 0 {
			t.Row(fmt.Sprintf("%s: %d more held", a.API, more), "", "--limit lists more")
		}
	}
}

// reusePart adds how many answers were given again, and how many jobs wait for one.
func reusePart(t *cli.Table, s *status.Status) {
	t.Row("ANSWERS OF", "REUSED TODAY", "SAVED TODAY", "REMEMBERED", "JOBS THAT WAIT FOR ONE")
	for _, a := range s.APIs {
		if a.Reuse == nil && a.ReusedToday == 0 {
			continue
		}
		remembered, waiting := "-", "-"
		if a.Reuse != nil {
			remembered, waiting = strconv.Itoa(a.Reuse.Answers), strconv.Itoa(a.Reuse.Waiting)
		}
		t.Row(a.API, strconv.FormatInt(a.ReusedToday, 10), cmp.Or(a.SavedToday, "-"), remembered, waiting)
	}
}

func limitsPart(t *cli.Table, s *status.Status) {
	t.Row("LIMIT", "USE")
	shown := map[string]bool{} // by name, because all apis of an account have the account's limits
	for _, a := range s.APIs {
		for i := range a.Limits {
			l := &a.Limits[i]
			name := a.API + "/" + l.Limit
			if strings.Contains(l.Limit, "/") {
				name = l.Limit
			}
			if !shown[name] {
				shown[name] = true
				t.Row(name, l.Text())
			}
		}
	}
}

func lettersPart(t *cli.Table, s *status.Status) {
	t.Row("DEAD LETTERS", "REASON", "API")
	for _, l := range s.Letters {
		t.Row(strconv.FormatUint(l.Letters, 10), string(l.Reason), cmp.Or(l.API, "-"))
	}
	if len(s.Letters) == 0 && s.LettersAll > 0 {
		t.Row(strconv.FormatUint(s.LettersAll, 10), "`weir dead stats` tells them apart", "")
	}
}

func callbacksPart(t *cli.Table, s *status.Status) {
	t.Row("CALLBACK OF", "NOT POSTED", "OLDEST", "GIVEN UP", "RECEIVER")
	for _, a := range s.APIs {
		c := a.Callback
		if c == nil {
			continue
		}
		behind, oldest, givenUp, receiver := strconv.FormatUint(c.Behind, 10), "-", strconv.FormatUint(c.GivenUp, 10), "no failed post"
		if !c.Oldest.IsZero() {
			oldest = cli.Brief(s.At.Sub(c.Oldest))
		}
		if c.Unknown {
			behind, oldest, givenUp, receiver = "not known yet", "-", "-", "-"
		}
		if !c.Failing.IsZero() {
			receiver = "fails since " + cli.ClockTime(c.Failing) + ": " + cli.Visible(c.Why)
		}
		t.Row(a.API, behind, oldest, givenUp, receiver)
	}
}

func replicasPart(t *cli.Table, s *status.Status) {
	t.Row("REPLICA", "VERSION", "READY", "PARTITIONS", "CONFIG", "UP", "ROLES")
	for _, r := range s.Replicas {
		ready := "yes"
		if !r.Ready {
			ready = "NO"
		}
		t.Row(r.Instance, r.Version, ready, strconv.Itoa(r.Owned), strconv.FormatUint(r.Config, 10), cli.Brief(s.At.Sub(r.Started)), strings.Join(r.Roles, ","))
	}
}

// ownersPart adds which replica owns which partitions. It leaves out an api if there is only one replica and it owns
// all partitions.
func ownersPart(t *cli.Table, s *status.Status) {
	t.Row("PARTITIONS OF", "REPLICA", "NUMBERS")
	for _, a := range s.APIs {
		if len(s.Replicas) < 2 && a.Owned == a.Partitions {
			continue
		}
		of := map[string][]int{}
		for number, owner := range a.Owners {
			of[owner] = append(of[owner], number)
		}
		for _, owner := range slices.Sorted(maps.Keys(of)) {
			t.Row(a.API, cmp.Or(owner, "NOBODY"), ranges(of[owner]))
		}
	}
}

// ranges formats sorted numbers as in 0-3, 6.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		part := strconv.Itoa(numbers[i])
		if end > i {
			part += "-" + strconv.Itoa(numbers[end])
		}
		parts, i = append(parts, part), end+1
	}
	return strings.Join(parts, ", ")
}
