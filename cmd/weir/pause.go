package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/ingest"
)

func pauseCommand() *cobra.Command {
	why, as := "", forPeople
	cmd := &cobra.Command{
		Use:   "pause API [KEY]",
		Short: "Keep an api, or one key of it, from being called",
		Long: `Keeps an api, or one key of it, from being called until ` + "`weir resume`" + `. Jobs are taken and wait; calls that run
may end. The pause is kept in NATS and survives restarts. The command returns when every dispatching replica that answers has
put it in force: no call starts after that.`,
		Example: "  weir pause credit-check --why 'invoice does not add up'\n  weir pause sms tenant.42",
		Args:    takes("API", "[KEY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return speakWord(cmd, args, as, func(c *connection, w *word) error { return w.pause(cmd, c, why) })
		},
	}
	cmd.Flags().StringVar(&why, "why", why, "why, for those who wonder later")
	as.add(cmd.Flags(), "one JSON object")
	return cmd
}

func resumeCommand() *cobra.Command {
	as := forPeople
	cmd := &cobra.Command{
		Use:   "resume API [KEY]",
		Short: "Let a paused api or key be called again",
		Long: `Ends a pause. What holds besides, an answer of the api or a limit, goes on holding. Keys that were paused one by one
stay paused when their api is resumed.`,
		Example: "  weir resume credit-check\n  weir resume sms tenant.42",
		Args:    takes("API", "[KEY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return speakWord(cmd, args, as, func(c *connection, w *word) error { return w.resume(cmd, c) })
		},
	}
	as.add(cmd.Flags(), "one JSON object")
	return cmd
}

// word is an operator's word about an api or a key, and what it came to, as --json prints it.
type word struct {
	API      string `json:"api"`
	Key      string `json:"key,omitempty"`
	Paused   bool   `json:"paused"`
	Changed  bool   `json:"changed"`  // it was not so before
	Replicas int    `json:"replicas"` // that have put it in force

	kv jetstream.KeyValue
}

func (w *word) name() string {
	if w.Key == "" {
		return w.API
	}
	return w.API + "/" + visible(w.Key)
}

func speakWord(cmd *cobra.Command, args []string, as format, speak func(c *connection, w *word) error) error {
	w := &word{API: args[0]}
	if len(args) > 1 {
		w.Key = args[1]
		if err := ingest.CheckKey(w.Key); err != nil {
			return usage(err)
		}
	}
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.checkAPI(cmd, w.API); err != nil {
		return err
	}
	w.kv, err = c.js.KeyValue(cmd.Context(), controlBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return notFound(fmt.Errorf("weir has not run on this server: there is no key-value bucket %s", controlBucket))
	} else if err != nil {
		return c.explain(err)
	}
	if err := speak(c, w); err != nil {
		return err
	}
	if as == asJSON {
		return printJSON(cmd.OutOrStdout(), w)
	}
	return nil
}

func (w *word) pause(cmd *cobra.Command, c *connection, why string) error {
	ctx := cmd.Context()
	p := dispatcher.Pause{At: time.Now().UTC().Truncate(time.Second), By: whoami(), Why: why}
	w.Paused = true
	_, err := w.kv.Create(ctx, pauseEntry(w.API, w.Key), marshal(p))
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s is paused already\n", w.name())
	case err != nil:
		return c.explain(err)
	default:
		w.Changed = true
		w.tell(cmd, c, deadletter.HeldEvent, p.String())
	}
	return w.awaitInForce(cmd, c)
}

func (w *word) resume(cmd *cobra.Command, c *connection) error {
	ctx := cmd.Context()
	entry, err := w.kv.Get(ctx, pauseEntry(w.API, w.Key))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return notFound(fmt.Errorf("%s is not paused", w.name()))
	case err != nil:
		return c.explain(err)
	}
	if err := w.kv.Delete(ctx, entry.Key(), jetstream.LastRevision(entry.Revision())); err != nil {
		return c.explain(err)
	}
	w.Changed = true
	w.tell(cmd, c, deadletter.ResumedEvent, "resumed by "+whoami())
	return w.awaitInForce(cmd, c)
}

func (w *word) tell(cmd *cobra.Command, c *connection, kind deadletter.EventType, why string) {
	e := deadletter.Event{Type: kind, API: w.API, Key: w.Key, Data: deadletter.HoldData{Why: why}}
	if err := e.Publish(cmd.Context(), c.js); err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: done, but the notification could not be stored: %v\n", err)
	}
}

// pausedAnswer is what one replica says of a pause.
type pausedAnswer struct {
	Instance string `json:"instance"`
	Paused   bool   `json:"paused"`
}

// How long a word may take to reach every replica, and how often they are asked.
const (
	wordTimeout = 10 * time.Second
	wordRetry   = 100 * time.Millisecond
)

// awaitInForce returns when every replica that answers has put the word in force.
func (w *word) awaitInForce(cmd *cobra.Command, c *connection) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), wordTimeout)
	defer cancel()
	talk := cmd.ErrOrStderr()
	state := "is called again"
	if w.Paused {
		state = "is paused"
	}
	for {
		w.Replicas = 0
		behind := ""
		err := c.ask(pausedSubject+w.API+"."+ingest.Token(w.Key), 1, func(data []byte, wrong *operatorError) bool {
			var a pausedAnswer
			if wrong != nil || json.Unmarshal(data, &a) != nil {
				return false
			}
			if a.Paused == w.Paused {
				w.Replicas++
			} else {
				behind = a.Instance
			}
			return false
		})
		switch {
		case errors.Is(err, errNobody):
			_, _ = fmt.Fprintf(talk, "weir: %s %s; no dispatching weir runs, it is in force from its next start on\n", w.name(), state)
			return nil
		case errors.Is(err, errSilent):
			word, still := "resume", "no call may start there yet"
			if w.Paused {
				word, still = "pause", "calls may still start there"
			}
			return fmt.Errorf("%s: the %s is stored, but a dispatching weir did not answer within %s: %s", w.name(), word, firstAnswer, still)
		case err != nil:
			return err
		case behind == "":
			_, _ = fmt.Fprintf(talk, "weir: %s %s: %s %s it in force\n", w.name(), state, count(w.Replicas, "dispatching replica"), verb(w.Replicas, "has", "have"))
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s is stored, but instance %s has not put it in force within %s: look at its log", w.name(), behind, wordTimeout)
		}
		pause(ctx, wordRetry)
	}
}
