package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/deadletter"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// OperatorCommand is an operator's command to pause or resume an api or a key, and its outcome, as --json prints it.
type OperatorCommand struct {
	API      string    `json:"api"`
	Key      string    `json:"key,omitempty"`
	Paused   bool      `json:"paused"`
	Changed  bool      `json:"changed"`           // the command has changed the stored state
	Until    time.Time `json:"until,omitzero"`    // end of a pause that ends by itself
	Replicas int       `json:"replicas"`          // replicas that have put the command in force
	Overdue  int       `json:"overdue,omitempty"` // replicas that did not answer, and may make no calls any more
	Trying   int       `json:"trying,omitempty"`  // replicas whose breaker was open, and that now make one call

	who string // the operator
	kv  jetstream.KeyValue
}

// NewOperatorCommand returns a command of the operator who. The command is about an api, or, if key is not "", about
// one key of the api.
func NewOperatorCommand(ctx context.Context, c *connect.Connection, who, api, key string) (*OperatorCommand, error) {
	kv, err := c.Control(ctx)
	if err != nil {
		return nil, err
	}
	return &OperatorCommand{API: api, Key: key, who: who, kv: kv}, nil
}

func (o *OperatorCommand) name() string {
	if o.Key == "" {
		return o.API
	}
	return o.API + "/" + cli.Visible(o.Key)
}

// Pausing holds an operator's choices for a pause.
type Pausing struct {
	Why string
	For time.Duration // the pause ends by itself after this time; 0: it does not
}

// Bounds of a pause that ends by itself.
const (
	shortestPause = time.Second
	longestPause  = 366 * 24 * time.Hour
)

// ReadLasting parses the duration of a pause: 1 s to 366 days, or 0 for an empty text.
func ReadLasting(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	lasts, err := grammar.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 90s, 2h or 1d", text)
	}
	if lasts < shortestPause || lasts > longestPause {
		return 0, fmt.Errorf("%s is not within 1s to 366d", text)
	}
	return lasts, nil
}

// Pause stops the calls of the api or the key, and blocks until no replica may start one. It replaces an existing pause
// if either of the two pauses ends by itself. Otherwise the existing pause stays unchanged. Pause writes progress to
// talk.
func (o *OperatorCommand) Pause(ctx context.Context, c *connect.Connection, talk io.Writer, say Pausing) error {
	p := schedule.Pause{At: time.Now().UTC().Truncate(time.Second), By: o.who, Why: say.Why, ForMS: say.For.Milliseconds()}
	o.Paused = true
	stands, err := o.storePause(ctx, p)
	if err != nil {
		return c.Explain(err)
	}
	if o.Until = stands.Until; o.Changed {
		o.tell(ctx, c, talk, deadletter.HeldEvent, stands)
	} else {
		_, _ = fmt.Fprintf(talk, "weir: %s is paused already\n", o.name())
	}
	return o.awaitInForce(ctx, c, talk)
}

// storePause stores a pause, and returns the pause that is stored afterwards.
func (o *OperatorCommand) storePause(ctx context.Context, p schedule.Pause) (schedule.Pause, error) {
	name := PauseEntry(o.API, o.Key)
	for range mostPauseRaces {
		revision, err := o.kv.Create(ctx, name, marshal(p))
		if errors.Is(err, jetstream.ErrKeyExists) {
			there, gone := o.kv.Get(ctx, name)
			if errors.Is(gone, jetstream.ErrKeyNotFound) {
				continue // another command resumed it just now
			} else if gone != nil {
				return p, gone
			}
			former := readPause(there)
			if former.ForMS == 0 && p.ForMS == 0 {
				return former, nil
			}
			if revision, err = o.kv.Update(ctx, name, marshal(p), there.Revision()); isWrongSequence(err) {
				continue
			}
		}
		if err != nil {
			return p, err
		}
		o.Changed = true
		if p.ForMS == 0 {
			return p, nil
		}
		stored, err := o.kv.GetRevision(ctx, name, revision)
		if err != nil { // another command has replaced the pause already, and reports its own event
			p.Until = p.At.Add(time.Duration(p.ForMS) * time.Millisecond)
			return p, nil //nolint:nilerr // the pause was stored
		}
		return readPause(stored), nil
	}
	return p, fmt.Errorf("%s: another command pauses or resumes it at the same time: try again", o.name())
}

// StorePause stores a pause of an api. It waits for no replica, so the calling process must not have begun to call the
// api.
func StorePause(ctx context.Context, kv jetstream.KeyValue, api, who, why string) error {
	o := &OperatorCommand{API: api, who: who, kv: kv}
	_, err := o.storePause(ctx, schedule.Pause{At: time.Now().UTC().Truncate(time.Second), By: who, Why: why})
	return err
}

// mostPauseRaces is how often a pause is tried again because another command changed the same entry at the same time.
const mostPauseRaces = 5

// Resume ends a pause. It blocks until the end is in force on every replica that may make calls. Then it makes each
// replica with an open breaker call the api once, without waiting.
func (o *OperatorCommand) Resume(ctx context.Context, c *connect.Connection, talk io.Writer) error {
	name, bucket := PauseEntry(o.API, o.Key), o.kv.Bucket()
	paused, err := stream.NewestEntry(ctx, c.Conn, bucket, name)
	switch {
	case err == nil && (paused == nil || paused.Deleted()):
		err := o.tryNow(c, talk)
		if err == nil && o.Trying == 0 {
			err = cli.NotFound(fmt.Errorf("%s is not paused, and no breaker of it is open", o.name()))
		}
		return err
	case err != nil:
		return c.Explain(err)
	}
	if err := o.kv.Delete(ctx, name, jetstream.LastRevision(paused.Seq)); err != nil {
		return c.Explain(err)
	}
	o.Changed = true
	o.tell(ctx, c, talk, deadletter.ResumedEvent, schedule.Pause{Why: "resumed by " + o.who})
	if err := o.awaitInForce(ctx, c, talk); err != nil {
		return err
	}
	return o.tryNow(c, talk)
}

// tryAnswer is one replica's answer to the request to call an api at once.
type tryAnswer struct {
	Instance string `json:"instance"`
	Tries    bool   `json:"tries"`
}

// tryNow makes each replica with an open breaker call the api once, without waiting. Each replica has its own breaker.
func (o *OperatorCommand) tryNow(c *connect.Connection, talk io.Writer) error {
	if o.Key != "" {
		return nil
	}
	err := ask(c, trySubject.Of(o.API), 1, func(data []byte, wrong *operatorError) bool {
		var a tryAnswer
		if wrong == nil && json.Unmarshal(data, &a) == nil && a.Tries {
			o.Trying++
		}
		return false
	})
	if o.Trying > 0 {
		_, _ = fmt.Fprintf(talk, "weir: %s kept failing or denied weir: it is called once now by %s, and by itself again when that is answered\n",
			o.name(), cli.Count(o.Trying, "replica"))
	}
	if errors.Is(err, errNobody) || errors.Is(err, errSilent) {
		return nil // a replica that starts later has no open breaker
	}
	return err
}

func (o *OperatorCommand) tell(ctx context.Context, c *connect.Connection, talk io.Writer, kind deadletter.EventType, p schedule.Pause) {
	data := deadletter.HoldData{Why: p.Why}
	if kind == deadletter.HeldEvent {
		data.Why = p.String()
	}
	if !p.Until.IsZero() {
		data.Until = &p.Until
	}
	e := deadletter.Event{Type: kind, API: o.API, Key: o.Key, Data: data}
	if err := e.Publish(ctx, c.JetStream); err != nil {
		_, _ = fmt.Fprintf(talk, "weir: done, but the notification could not be stored: %v\n", err)
	}
}

// pausedAnswer is one replica's answer about a pause.
type pausedAnswer struct {
	Instance string    `json:"instance"`
	Session  string    `json:"session,omitempty"` // the session of its lease
	Paused   bool      `json:"paused"`
	Until    time.Time `json:"until,omitzero"` // when the pause ends by itself
}

// A command fails if some replica has not put it in force within commandTimeout. It asks the replicas every
// commandRetry.
const (
	commandTimeout = 20 * time.Second
	commandRetry   = 100 * time.Millisecond
)

// awaitInForce blocks until every replica that may make calls has put the command in force. It fails after
// commandTimeout.
func (o *OperatorCommand) awaitInForce(ctx context.Context, c *connect.Connection, talk io.Writer) error {
	command := ctx
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	state := "is called again"
	if o.Paused {
		state = "is paused"
	}
	if !o.Until.IsZero() {
		state += " until " + cli.ClockTime(o.Until)
	}
	word, still := "resume", "no call may start there yet"
	if o.Paused {
		word, still = "pause", "calls may still start there"
	}
	m, err := awaitReplicas(ctx, c)
	if err != nil {
		return err
	}
	for {
		o.Replicas = 0
		behind := ""
		err := m.ask(command, pausedSubject.Of(o.API, o.Key), func(data []byte) (who replica) {
			var a pausedAnswer
			switch {
			case json.Unmarshal(data, &a) != nil:
			case a.Paused == o.Paused && (a.Until.Equal(o.Until) || !o.Changed):
				o.Replicas++
			default:
				behind = a.Instance
			}
			return replica{a.Instance, a.Session}
		})
		o.Overdue = len(m.over)
		switch {
		case errors.Is(err, errSilent):
			return fmt.Errorf("%s: the %s is stored, but a dispatching weir did not answer within %s: %s", o.name(), word, firstAnswer, still)
		case err != nil:
			return err
		case behind == "" && m.complete() && o.Replicas == 0:
			_, _ = fmt.Fprintf(talk, "weir: %s %s; %s\n", o.name(), state, m.nobody())
			return nil
		case behind == "" && m.complete():
			_, _ = fmt.Fprintf(talk, "weir: %s %s: %s %s it in force%s\n", o.name(), state, cli.Count(o.Replicas, "dispatching replica"), cli.Verb(o.Replicas, "has", "have"), m.overdue())
			return nil
		case ctx.Err() != nil && behind == "":
			return fmt.Errorf("%s: the %s is stored, but %s: %s", o.name(), word, m.missing(), still)
		case ctx.Err() != nil:
			return fmt.Errorf("%s: the %s is stored, but instance %s has not put it in force within %s: look at its log", o.name(), word, cli.Visible(behind), commandTimeout)
		}
		stream.Sleep(ctx, commandRetry)
	}
}
