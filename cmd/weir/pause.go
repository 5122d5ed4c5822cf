package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/ingest"
)

func pauseCommand() *cobra.Command {
	why, as := "", cli.ForPeople
	cmd := &cobra.Command{
		Use:   "pause API [KEY]",
		Short: "Keep an api, or one key of it, from being called",
		Long: `Keeps an api, or one key of it, from being called until ` + "`weir resume`" + `. Jobs are taken and wait; calls that run
may end. The pause is kept in NATS and survives restarts. The command returns when every dispatching replica has put it in force: no
call starts after that. One that does not answer, because it is stopped or cut off, has its right to call ended, which takes some
seconds; one that keeps that right and does not answer is named, and the command ends with 1.`,
		Example: "  weir pause credit-check --why 'invoice does not add up'\n  weir pause sms tenant.42",
		Args:    cli.Takes("API", "[KEY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return speakWord(cmd, args, as, func(c *connect.Connection, w *word) error { return w.pause(cmd, c, why) })
		},
	}
	cmd.Flags().StringVar(&why, "why", why, "why, for those who wonder later")
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

func resumeCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "resume API [KEY]",
		Short: "Let a paused api or key be called again, or try an api again that kept failing",
		Long: `Ends a pause. An api whose calls kept failing, so that its breaker is open, or that denied weir (401, 402, 403, 407, a redirect),
is called once at once: when that call is answered the others follow. What holds besides, an answer of the api (Retry-After) or a limit, goes on holding. Keys that were paused one by
one stay paused when their api is resumed.`,
		Example: "  weir resume credit-check\n  weir resume sms tenant.42",
		Args:    cli.Takes("API", "[KEY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return speakWord(cmd, args, as, func(c *connect.Connection, w *word) error { return w.resume(cmd, c) })
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// word is an operator's word about an api or a key, and what it came to, as --json prints it.
type word struct {
	API      string `json:"api"`
	Key      string `json:"key,omitempty"`
	Paused   bool   `json:"paused"`
	Changed  bool   `json:"changed"`           // it was not so before
	Replicas int    `json:"replicas"`          // that have put it in force
	Overdue  int    `json:"overdue,omitempty"` // that did not answer, and may not call any more
	Trying   int    `json:"trying,omitempty"`  // whose breaker was open, and that call once now

	kv jetstream.KeyValue
}

func (w *word) name() string {
	if w.Key == "" {
		return w.API
	}
	return w.API + "/" + cli.Visible(w.Key)
}

func speakWord(cmd *cobra.Command, args []string, as cli.Format, speak func(c *connect.Connection, w *word) error) error {
	w := &word{API: args[0]}
	if len(args) > 1 {
		w.Key = args[1]
		if err := ingest.CheckKey(w.Key); err != nil {
			return cli.Usage(err)
		}
	}
	err := aboutAPI(cmd, w.API, func(c *connect.Connection) (err error) {
		w.kv, err = c.JetStream.KeyValue(cmd.Context(), connect.ControlBucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			return cli.NotFound(fmt.Errorf("weir has not run on this server: there is no key-value bucket %s", connect.ControlBucket))
		} else if err != nil {
			return c.Explain(err)
		}
		return speak(c, w)
	})
	if err != nil {
		return err
	}
	if as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), w)
	}
	return nil
}

func (w *word) pause(cmd *cobra.Command, c *connect.Connection, why string) error {
	ctx := cmd.Context()
	p := dispatcher.Pause{At: time.Now().UTC().Truncate(time.Second), By: whoami(), Why: why}
	w.Paused = true
	_, err := w.kv.Create(ctx, pauseEntry(w.API, w.Key), marshal(p))
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s is paused already\n", w.name())
	case err != nil:
		return c.Explain(err)
	default:
		w.Changed = true
		w.tell(cmd, c, deadletter.HeldEvent, p.String())
	}
	return w.awaitInForce(cmd, c)
}

func (w *word) resume(cmd *cobra.Command, c *connect.Connection) error {
	ctx := cmd.Context()
	entry, err := w.kv.Get(ctx, pauseEntry(w.API, w.Key))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		err := w.tryNow(cmd, c)
		if err == nil && w.Trying == 0 {
			err = cli.NotFound(fmt.Errorf("%s is not paused, and no breaker of it is open", w.name()))
		}
		return err
	case err != nil:
		return c.Explain(err)
	}
	if err := w.kv.Delete(ctx, entry.Key(), jetstream.LastRevision(entry.Revision())); err != nil {
		return c.Explain(err)
	}
	w.Changed = true
	w.tell(cmd, c, deadletter.ResumedEvent, "resumed by "+whoami())
	if err := w.awaitInForce(cmd, c); err != nil {
		return err
	}
	return w.tryNow(cmd, c)
}

// tryAnswer is what one replica says when it is to try an api.
type tryAnswer struct {
	Instance string `json:"instance"`
	Tries    bool   `json:"tries"`
}

// tryNow has an api called at once wherever its breaker is open: each replica has its own.
func (w *word) tryNow(cmd *cobra.Command, c *connect.Connection) error {
	if w.Key != "" {
		return nil
	}
	err := ask(c, trySubject+w.API, 1, func(data []byte, wrong *operatorError) bool {
		var a tryAnswer
		if wrong == nil && json.Unmarshal(data, &a) == nil && a.Tries {
			w.Trying++
		}
		return false
	})
	if w.Trying > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s kept failing or denied weir: it is called once now by %s, and by itself again when that is answered\n",
			w.name(), cli.Count(w.Trying, "replica"))
	}
	if errors.Is(err, errNobody) || errors.Is(err, errSilent) {
		return nil // who begins to call later has no breaker open
	}
	return err
}

func (w *word) tell(cmd *cobra.Command, c *connect.Connection, kind deadletter.EventType, why string) {
	e := deadletter.Event{Type: kind, API: w.API, Key: w.Key, Data: deadletter.HoldData{Why: why}}
	if err := e.Publish(cmd.Context(), c.JetStream); err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: done, but the notification could not be stored: %v\n", err)
	}
}

// pausedAnswer is what one replica says of a pause.
type pausedAnswer struct {
	Instance string `json:"instance"`
	Session  string `json:"session,omitempty"` // its lease
	Paused   bool   `json:"paused"`
}

// How long a word may take to reach every replica, and how often they are asked.
const (
	wordTimeout = 20 * time.Second
	wordRetry   = 100 * time.Millisecond
)

// awaitInForce returns when every replica that may call has put the word in force.
func (w *word) awaitInForce(cmd *cobra.Command, c *connect.Connection) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), wordTimeout)
	defer cancel()
	talk := cmd.ErrOrStderr()
	state := "is called again"
	if w.Paused {
		state = "is paused"
	}
	word, still := "resume", "no call may start there yet"
	if w.Paused {
		word, still = "pause", "calls may still start there"
	}
	m, err := newMuster(ctx, c)
	if err != nil {
		return err
	}
	for {
		w.Replicas = 0
		behind := ""
		err := m.ask(cmd.Context(), pausedSubject+w.API+"."+ingest.Token(w.Key), func(data []byte) (who replica) {
			var a pausedAnswer
			switch {
			case json.Unmarshal(data, &a) != nil:
			case a.Paused == w.Paused:
				w.Replicas++
			default:
				behind = a.Instance
			}
			return replica{a.Instance, a.Session}
		})
		w.Overdue = len(m.over)
		switch {
		case errors.Is(err, errSilent):
			return fmt.Errorf("%s: the %s is stored, but a dispatching weir did not answer within %s: %s", w.name(), word, firstAnswer, still)
		case err != nil:
			return err
		case behind == "" && m.complete() && w.Replicas == 0:
			_, _ = fmt.Fprintf(talk, "weir: %s %s; %s\n", w.name(), state, m.nobody())
			return nil
		case behind == "" && m.complete():
			_, _ = fmt.Fprintf(talk, "weir: %s %s: %s %s it in force%s\n", w.name(), state, cli.Count(w.Replicas, "dispatching replica"), cli.Verb(w.Replicas, "has", "have"), m.overdue())
			return nil
		case ctx.Err() != nil && behind == "":
			return fmt.Errorf("%s: the %s is stored, but %s: %s", w.name(), word, m.missing(), still)
		case ctx.Err() != nil:
			return fmt.Errorf("%s is stored, but instance %s has not put it in force within %s: look at its log", w.name(), behind, wordTimeout)
		}
		stream.Sleep(ctx, wordRetry)
	}
}
