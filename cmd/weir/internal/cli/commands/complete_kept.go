package commands

import (
	"cmp"
	"slices"
	"strconv"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/joblist"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/spf13/cobra"
)

// Bounds of the jobs and letters that completion offers. It offers the newest ones, the newest first.
const (
	completedKept   = 50
	completedQueued = 3 // the number of keys whose next jobs are read
)

// word adds a completion, unless all has it already or a shell would not take it as one word.
func word(all []cobra.Completion, text, about string) []cobra.Completion {
	if text == "" || cli.Visible(text) != text || slices.ContainsFunc(all, func(c cobra.Completion) bool { return c == cobra.CompletionWithDesc(text, about) }) {
		return all
	}
	return append(all, cobra.CompletionWithDesc(text, about))
}

// newestJobs returns the ids of the newest jobs in any state.
func newestJobs(cmd *cobra.Command, args []string) (found []cobra.Completion) {
	if len(args) > 0 {
		return nil
	}
	_ = connect.With(func(c *connect.Connection) error {
		page, err := joblist.List(cmd.Context(), c, &joblist.Question{Limit: 2 * completedKept})
		for i := range page.Jobs {
			j := &page.Jobs[i]
			found = word(found, j.Job, cli.Visible(cmp.Or(j.Reason, string(j.State))+", of "+j.API+"/"+j.Key))
		}
		return err
	})
	return found
}

// keptResults returns the ids of the jobs with the newest results.
func keptResults(cmd *cobra.Command, _ []string) (found []cobra.Completion) {
	_ = connect.With(func(c *connect.Connection) error {
		_, err := ledger.NewestResults(cmd.Context(), c.JetStream, ledger.ResultFilter{}, completedKept, func(r ledger.Result) error {
			found = word(found, r.Job, "done, of "+cli.Visible(r.API+"/"+r.Key))
			return nil
		})
		return err
	})
	return found
}

// queuedJobs returns the ids of waiting jobs of an api, which is the first argument. They are the next jobs of the
// api's deepest buckets.
func queuedJobs(_ *cobra.Command, args []string) (found []cobra.Completion) {
	if len(args) != 1 {
		return nil
	}
	_ = connect.With(func(c *connect.Connection) error {
		list, err := admin.Keys(c, args[0], completedQueued)
		if err != nil {
			return err
		}
		for i := range list.Buckets {
			shown, err := admin.Show(c, args[0], list.Buckets[i].Key, completedKept)
			if err != nil {
				return err
			}
			for _, j := range shown.Next {
				found = word(found, j.Job, "waits, of "+cli.Visible(list.Buckets[i].Key))
			}
		}
		return nil
	})
	return found
}

// keptLetters returns the numbers of the newest letters, without the numbers that are already on the command line.
func keptLetters(cmd *cobra.Command, args []string) (found []cobra.Completion) {
	newestLetters(cmd, func(k *deadletter.Kept) {
		if seq := strconv.FormatUint(k.Seq, 10); !slices.Contains(args, seq) {
			found = word(found, seq, letterText(k))
		}
	})
	return found
}

func letterText(k *deadletter.Kept) string {
	return cli.Visible(string(k.Reason) + ", of " + k.API + "/" + k.Key)
}

func newestLetters(cmd *cobra.Command, take func(k *deadletter.Kept)) {
	_ = connect.With(func(c *connect.Connection) error {
		given := 0
		_, err := deadletter.NewestLetters(cmd.Context(), c.JetStream, deadletter.Filter{}, completedKept, func(k deadletter.Kept) error {
			take(&k)
			if given++; given == completedKept {
				return stream.ErrEnough
			}
			return nil
		})
		return err
	})
}

// redrives returns the names of the known redrives.
func redrives(cmd *cobra.Command, args []string) (found []cobra.Completion) {
	if len(args) > 0 {
		return nil
	}
	_ = connect.With(func(c *connect.Connection) error {
		tasks, err := deadview.OpenTasks(cmd.Context(), c)
		if err != nil {
			return err
		}
		all, err := tasks.List(cmd.Context())
		for i := range all {
			told := deadview.TellTask(&all[i])
			found = word(found, told.Name, string(told.State))
		}
		return err
	})
	return found
}
