package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/dispatcher"
	"weir/ingest"
)

func cancelCommand() *cobra.Command {
	var q cancelQuestion
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "cancel API JOB",
		Short: "End a job that has not been called yet",
		Long: `Ends a job that waits: it is not called, and becomes a dead letter with the reason cancelled. A job whose call runs
cannot be cancelled. The same id under two keys is two jobs: name the key.`,
		Example: "  weir cancel credit-check 0199aa00-0000-7000-8000-000000000001 --why 'customer withdrew'\n  weir cancel sms order-7 --key tenant.42",
		Args:    cli.Takes("API", "JOB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Job = args[1]
			if q.Key != "" {
				if err := ingest.CheckKey(q.Key); err != nil {
					return cli.Usage(err)
				}
			}
			return aboutAPI(cmd, args[0], func(c *connect.Connection) error {
				answers, err := cancelJob(c, args[0], q)
				if err != nil {
					return err
				}
				return printCancelled(cmd, args[0], q.Job, answers, as)
			})
		},
	}
	cmd.Flags().StringVar(&q.Key, "key", "", "the job's key, where its id stands under several")
	cmd.Flags().StringVar(&q.Why, "why", "", "why; it stands in the letter")
	as.Add(cmd.Flags(), "one JSON object a job")
	return cmd
}

// cancelQuestion is what an operator asks the replicas to cancel.
type cancelQuestion struct {
	Job string `json:"job"`
	Key string `json:"key,omitempty"`
	Why string `json:"why,omitempty"`
	// Look only says what would be cancelled.
	Look bool `json:"look,omitempty"`
}

// cancelReply is one replica's answer.
type cancelReply struct {
	dispatcher.APIState
	Jobs []dispatcher.CancelAnswer `json:"found"`
	Err  string                    `json:"error,omitempty"`
}

// cancelJob looks first: an id that stands under several keys is nobody's in particular.
func cancelJob(c *connect.Connection, api string, q cancelQuestion) ([]dispatcher.CancelAnswer, error) {
	q.Look = true
	found, err := askCancel(c, api, q)
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for _, f := range found {
		if !slices.Contains(keys, f.Key) {
			keys = append(keys, f.Key)
		}
	}
	switch len(keys) {
	case 0:
		return nil, cli.NotFound(fmt.Errorf("no unfinished job of %s has the id %s", api, cli.Visible(q.Job)))
	case 1:
	default:
		slices.Sort(keys)
		return nil, cli.Refused(fmt.Errorf("the id %s stands under %d keys of %s: name one with --key (%s)", cli.Visible(q.Job), len(keys), api,
			cli.Visible(strings.Join(keys[:min(len(keys), 10)], ", "))))
	}
	q.Key, q.Look = keys[0], false
	return askCancel(c, api, q)
}

// askCancel asks every replica, until the owners of all partitions have answered.
func askCancel(c *connect.Connection, api string, q cancelQuestion) (found []dispatcher.CancelAnswer, err error) {
	owned, all, failed := 0, 1, error(nil)
	err = askFor(c, cancelSubject+api, marshal(q), cancelWaits, func(data []byte, wrong *operatorError) bool {
		var a cancelReply
		switch {
		case wrong != nil && wrong.code == codeNoAPI:
			return false
		case wrong != nil:
			failed = wrong
			return false
		case json.Unmarshal(data, &a) != nil:
			failed = errors.New("a dispatcher's answer cannot be read: is it another version?")
			return false
		case a.Err != "":
			failed = errors.New(a.Err)
		}
		found = append(found, a.Jobs...)
		owned, all = owned+a.Owned, a.Partitions
		return owned >= all
	})
	if err == nil {
		err = failed
	}
	if err == nil && owned < all && len(found) == 0 {
		err = cli.Unreachable(fmt.Errorf("nobody answered for %d of the %d partitions of %s: try again in some seconds", all-owned, all, api))
	}
	return found, err
}

func printCancelled(cmd *cobra.Command, api, job string, answers []dispatcher.CancelAnswer, as cli.Format) error {
	late, gone := "", 0
	for _, a := range answers {
		if as == cli.AsJSON {
			if err := cli.PrintJSON(cmd.OutOrStdout(), a); err != nil {
				return err
			}
		}
		name := fmt.Sprintf("%s of %s/%s", cli.Visible(job), api, cli.Visible(a.Key))
		switch a.Verdict {
		case dispatcher.CancelTaken:
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s is cancelled, its letter is stored\n", name)
		case dispatcher.CancelCalling:
			late = name + " is being called: too late"
		case dispatcher.CancelReading:
			late = name + " is in a queue that is just being read: try again in some seconds"
		default:
			gone++
		}
	}
	switch {
	case late != "":
		return cli.Refused(errors.New(late))
	case gone == len(answers):
		return cli.NotFound(fmt.Errorf("%s of %s has ended meanwhile", cli.Visible(job), api))
	}
	return nil
}
