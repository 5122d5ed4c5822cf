package api

import (
	"context"
	"fmt"
	"io"
	"strings"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/letters"
	"weir/cmd/weir/internal/proposal"
	"weir/deadletter"
	"weir/dispatcher"
	"weir/ingest"
)

// pauseWord is what an operator says with a pause.
type pauseWord struct {
	Why string `json:"why,omitempty"` // for those who wonder later
	For string `json:"for,omitempty"` // as in 90s, 2h or 1d: it ends by itself; absent: it does not
}

// cancelWord is what an operator says with the end of a job.
type cancelWord struct {
	Key string `json:"key,omitempty"` // where its id stands under several
	Why string `json:"why,omitempty"` // it stands in the letter
}

// cancelled answers it.
type cancelled struct {
	Jobs []dispatcher.CancelAnswer `json:"jobs"`
}

// purgeWord is which letters are to be deleted for good.
type purgeWord struct {
	selection

	Rate   string `json:"rate,omitempty"`    // letters per duration, as in 500/s; absent: as fast as the server can
	DryRun bool   `json:"dry_run,omitempty"` // only say what would be deleted
}

// selection is which letters are meant: those that the fields choose or, where seqs names any, those.
type selection struct {
	API    string   `json:"api,omitempty"` // _ for jobs of unknown apis
	Key    string   `json:"key,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Since  string   `json:"since,omitempty"` // RFC 3339, or how long ago, as in 2h or 1d
	Until  string   `json:"until,omitempty"`
	Status string   `json:"status,omitempty"` // 503, 5xx, or 0 for none
	Seqs   []uint64 `json:"seqs,omitempty"`
	// All says that no field is meant to choose: without it an empty selection is refused.
	All bool `json:"all,omitempty"`
}

// configText is a configuration that somebody proposes.
type configText struct {
	YAML   string `json:"yaml"`
	From   string `json:"from,omitempty"`    // where it comes from, for the history
	DryRun bool   `json:"dry_run,omitempty"` // only say what would change
}

// configCheck is a configuration that somebody wants checked.
type configCheck struct {
	YAML string `json:"yaml"`
}

// rollbackWord is which version is to be in force again.
type rollbackWord struct {
	Version uint64 `json:"version,omitempty"` // absent: the one before that in force
	DryRun  bool   `json:"dry_run,omitempty"`
}

// configBody bounds a request with a configuration, in bytes: JSON may write each of its own as six.
const configBody = 4 << 20

func wordRoutes() []route {
	return []route{
		{
			method: "POST", path: "/apis/{api}/pause", name: "pauseAPI", role: console.Operator, body: pauseWord{}, answer: &control.OperatorCommand{},
			summary: "Keep an api from being called (weir pause). Answered when every replica that may call has it in force", serve: (*API).pause,
		},
		{
			method: "POST", path: "/apis/{api}/resume", name: "resumeAPI", role: console.Operator, answer: &control.OperatorCommand{},
			summary: "Let a paused api be called again, or try one again that kept failing (weir resume)", serve: (*API).resume,
		},
		{
			method: "POST", path: "/apis/{api}/keys/{key}/pause", name: "pauseKey", role: console.Operator, body: pauseWord{}, answer: &control.OperatorCommand{},
			summary: "Keep a key from being called (weir pause)", serve: (*API).pause,
		},
		{
			method: "POST", path: "/apis/{api}/keys/{key}/resume", name: "resumeKey", role: console.Operator, answer: &control.OperatorCommand{},
			summary: "Let a paused key be called again (weir resume)", serve: (*API).resume,
		},
		{
			method: "POST", path: "/apis/{api}/key/pause", name: "pauseKeyNamed", role: console.Operator, body: pauseWord{}, answer: &control.OperatorCommand{},
			query: []parameter{keyNamed}, summary: "Keep a key from being called that no path can hold, as . and .. are", serve: (*API).pause,
		},
		{
			method: "POST", path: "/apis/{api}/key/resume", name: "resumeKeyNamed", role: console.Operator, answer: &control.OperatorCommand{},
			query: []parameter{keyNamed}, summary: "Let such a key be called again", serve: (*API).resume,
		},
		{
			method: "POST", path: "/apis/{api}/jobs/{id}/cancel", name: "cancelJob", role: console.Operator, body: cancelWord{}, answer: cancelled{}, time: longRead, atOnce: readsAtOnce,
			summary: "End a job that has not been called yet (weir cancel): it becomes a dead letter", serve: (*API).cancel,
		},
		{
			method: "POST", path: "/dead/{seq}/reveal", name: "revealLetter", role: console.Operator, answer: letters.Letter{},
			summary: "One dead letter with its body, the api's answer and its headers (weir dead show --json). It is told in an event who looked", serve: (*API).reveal,
		},
		{
			method: "POST", path: "/dead/{seq}/reconcile", name: "reconcileLetter", role: console.Operator, answer: dispatcher.Reconciled{}, time: 2 * longRead, atOnce: readsAtOnce,
			summary: "Ask the api by its inquiry what became of a letter unknown (weir dead reconcile)", serve: (*API).reconcile,
		},
		{
			method: "POST", path: "/dead/purge", name: "purgeLetters", role: console.Operator, body: purgeWord{}, answer: &letters.Purge{}, time: 10 * longRead, atOnce: 1,
			summary: "Delete dead letters for good, or with dry_run only say which (weir dead purge)", serve: (*API).purge,
		},
		{
			method: "POST", path: "/config/check", name: "checkConfig", role: console.Viewer, body: configCheck{}, maxBody: configBody, answer: proposal.Verdict{},
			summary: "Find everything that is wrong with a configuration (weir config check). It changes nothing", serve: (*API).checkConfig,
		},
		{
			method: "POST", path: "/config/apply", name: "applyConfig", role: console.Operator, body: configText{}, maxBody: configBody, answer: proposal.Applied{}, time: longRead, atOnce: 1,
			summary: "Put a configuration in force, or with dry_run only say what would change (weir config apply)", serve: (*API).applyConfig,
		},
		{
			method: "POST", path: "/config/rollback", name: "rollbackConfig", role: console.Operator, body: rollbackWord{}, answer: proposal.Applied{}, time: longRead, atOnce: 1,
			summary: "Put an earlier version of the configuration in force again (weir config rollback)", serve: (*API).rollbackConfig,
		},
	}
}

// read reads what a request says.
func read[T any](r *request) (T, error) {
	var said T
	if p := console.ReadJSON(r.Request, &said); p != nil {
		return said, p
	}
	return said, nil
}

// readIfAny is read of a request that may say nothing.
func readIfAny[T any](r *request) (T, error) {
	if r.ContentLength == 0 {
		var nothing T
		return nothing, nil
	}
	return read[T](r)
}

// operator is what somebody says about the api of a path, or about the key in it.
func (a *API) operator(ctx context.Context, r *request) (*control.OperatorCommand, error) {
	api, err := a.api(r)
	if err != nil {
		return nil, err
	}
	key := ""
	if strings.Contains(r.Pattern, "/key") { // else it is about the whole api
		if key, err = r.key(); err != nil {
			return nil, err
		}
	}
	return control.NewOperatorCommand(ctx, a.Connection, r.who.String(), api.Name, key)
}

func (a *API) pause(ctx context.Context, r *request) (any, error) {
	said, err := readIfAny[pauseWord](r)
	if err != nil {
		return nil, err
	}
	lasts, err := control.ReadLasting(said.For)
	if err != nil {
		return nil, badRequest("for: %v", err)
	}
	o, err := a.operator(ctx, r)
	if err != nil {
		return nil, err
	}
	return o, o.Pause(ctx, a.Connection, io.Discard, control.Pausing{Why: said.Why, For: lasts})
}

func (a *API) resume(ctx context.Context, r *request) (any, error) {
	o, err := a.operator(ctx, r)
	if err != nil {
		return nil, err
	}
	return o, o.Resume(ctx, a.Connection, io.Discard)
}

func (a *API) cancel(_ context.Context, r *request) (any, error) {
	api, err := a.api(r)
	if err != nil {
		return nil, err
	}
	said, err := readIfAny[cancelWord](r)
	if err != nil {
		return nil, err
	}
	if said.Key != "" {
		if err := ingest.CheckKey(said.Key); err != nil {
			return nil, badRequest("key: %v", err)
		}
	}
	job := r.PathValue("id")
	found, err := control.Cancel(a.Connection, api.Name, control.Cancellation{Job: job, Key: said.Key, Why: said.Why})
	if err == nil {
		err = control.Cancelled(api.Name, job, found)
	}
	return cancelled{found}, err
}

func (a *API) reveal(ctx context.Context, r *request) (any, error) {
	k, err := a.letter(ctx, r)
	if err != nil {
		return nil, err
	}
	looked := deadletter.Event{Type: deadletter.RevealedEvent, API: k.API, Key: k.Key, Data: deadletter.RevealData{
		Who: r.who.String(), Job: k.JobID, DeadLetterSeq: k.Seq,
	}}
	if err := looked.Publish(ctx, a.Connection.JetStream); err != nil { // nobody sees a body without that being told
		return nil, cli.Unreachable(fmt.Errorf("the letter is not revealed, since that could not be told: %w", err))
	}
	return letters.Whole(k), nil
}

func (a *API) reconcile(ctx context.Context, r *request) (any, error) {
	k, err := a.letter(ctx, r)
	if err != nil {
		return nil, err
	}
	api, err := a.named(k.API)
	switch {
	case err != nil:
		return nil, err
	case k.Reason != deadletter.Unknown:
		return nil, cli.Refused(fmt.Errorf("letter %d is %s: only letters unknown are asked about", k.Seq, k.Reason))
	case api.Inquiry == nil:
		return nil, cli.Refused(fmt.Errorf("api %s has no inquiry in its configuration", api.Name))
	}
	return control.Reconcile(a.Connection, api.Name, k.Seq)
}

// choose reads a selection.
func (s *selection) choose(r *request) (deadletter.Selection, string, error) {
	c := letters.Choice{API: s.API, Key: s.Key, Reason: s.Reason, Since: s.Since, Until: s.Until, Status: s.Status}
	if len(s.Seqs) > 0 {
		if c != (letters.Choice{}) || s.All {
			return deadletter.Selection{}, "", badRequest("name letters by seqs or choose them by the other fields, not both")
		}
		return deadletter.Selection{Seqs: s.Seqs}, strings.Trim(fmt.Sprint(s.Seqs), "[]"), nil
	}
	if c == (letters.Choice{}) && !s.All {
		return deadletter.Selection{}, "", badRequest("nothing is chosen: say which letters, or all: true")
	}
	f, err := c.Filter(r.asked)
	if err != nil {
		return deadletter.Selection{}, "", badRequest("%v", err)
	}
	return deadletter.Selection{Filter: f}, c.String(), nil
}

func (a *API) purge(ctx context.Context, r *request) (any, error) {
	said, err := read[purgeWord](r)
	if err != nil {
		return nil, err
	}
	chosen, words, err := said.choose(r)
	if err != nil {
		return nil, err
	}
	var rate *bucket.Rate
	if said.Rate != "" {
		every, err := config.ParseRate(said.Rate)
		if err != nil {
			return nil, badRequest("rate: %v", err)
		}
		rate = &every
	}
	scope, found, err := a.scope(ctx, chosen)
	if err != nil {
		return nil, err
	}
	told := letters.PurgeOf(found, rate)
	if said.DryRun {
		told.DryRun = true
		return told, nil
	}
	right, err := letters.TakeRight(ctx, a.Connection, r.who.String())
	if err != nil {
		return nil, err
	}
	defer right.Give()
	told.Purged, err = scope.Purge(ctx, deadletter.PurgeOptions{Rate: rate, Valid: right.Valid, Told: func(int) {}})
	if told.Purged > 0 {
		about := letters.Operation{Who: r.who.String(), API: said.API, Key: said.Key, Selection: words}
		if err := about.TellPurged(context.WithoutCancel(ctx), a.Connection, told.Purged); err != nil {
			a.Log.Warn("an event could not be stored", "err", err)
		}
	}
	return told, a.Connection.Explain(err)
}

// scope ends a selection at the letters that are there now, of which there must be some.
func (a *API) scope(ctx context.Context, chosen deadletter.Selection) (*deadletter.Scope, *deadletter.Contents, error) {
	none := cli.NotFound(errNoLetters)
	b, err := a.browse(ctx)
	if err != nil {
		return nil, nil, err
	}
	if b == nil {
		return nil, nil, none
	}
	scope, err := b.Scope(ctx, chosen)
	if err != nil {
		return nil, nil, a.explainScope(err)
	}
	found, err := scope.Contents(ctx)
	if err == nil && found.Letters == 0 {
		err = none
	}
	return scope, found, a.Connection.Explain(err)
}

func (a *API) checkConfig(_ context.Context, r *request) (any, error) {
	said, err := read[configCheck](r)
	if err != nil {
		return nil, err
	}
	v, _, err := proposal.Check("yaml", []byte(said.YAML), a.Scope())
	return v, err
}

func (a *API) applyConfig(ctx context.Context, r *request) (any, error) {
	said, err := read[configText](r)
	if err != nil {
		return nil, err
	}
	from := said.From
	if from == "" {
		from = "HTTP"
	}
	c, err := config.Parse([]byte(said.YAML), config.Options{Name: "yaml"})
	if err != nil {
		return nil, err
	}
	store, err := control.OpenConfigStore(ctx, a.Connection)
	if err != nil {
		return nil, err
	}
	p := &proposal.Proposal{Who: r.who.String(), From: from, Text: said.YAML, Config: c}
	if err := p.Against(ctx, a.Connection, store); err != nil {
		return nil, err
	}
	return a.propose(ctx, store, p, said.DryRun)
}

func (a *API) rollbackConfig(ctx context.Context, r *request) (any, error) {
	said, err := readIfAny[rollbackWord](r)
	if err != nil {
		return nil, err
	}
	entries, err := control.ConfigHistory(ctx, a.Connection)
	if err != nil {
		return nil, err
	}
	p, err := proposal.Earlier(entries, said.Version)
	if err != nil {
		return nil, err
	}
	p.Who = r.who.String()
	store, err := control.OpenConfigStore(ctx, a.Connection)
	if err != nil {
		return nil, err
	}
	return a.propose(ctx, store, p, said.DryRun)
}

// propose puts a proposal in force, unless it is only to be told what that would change.
func (a *API) propose(ctx context.Context, store control.ConfigStore, p *proposal.Proposal, dryRun bool) (any, error) {
	told, same := p.Differs()
	if same {
		if dryRun {
			return told, nil
		}
		return told, control.AwaitFollowed(ctx, a.Connection, io.Discard, told.Version)
	}
	var err error
	if told.Spent, err = p.SpentAlready(ctx, a.Connection); err != nil {
		a.Log.Warn("what is left of changed limits is not known", "err", err)
	}
	if dryRun {
		return told, nil
	}
	return told, p.Put(ctx, a.Connection, store, io.Discard, &told)
}
