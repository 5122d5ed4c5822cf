package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/limitstate"
	"weir/dispatcher"
	"weir/ingest"
)

// Operators' questions to the running dispatchers. Every replica answers every question for what it owns, so there is no
// queue group; whoever asks gathers the answers.
const (
	operatorService = "weir-operator"
	keysSubject     = "weir.operator.keys."   // + api
	showSubject     = "weir.operator.show."   // + api.keytoken
	pausedSubject   = "weir.operator.paused." // + api.keytoken
	cancelSubject   = "weir.operator.cancel." // + api
	trySubject      = "weir.operator.try."    // + api
	configSubject   = "weir.operator.config"
)

// How long answers are waited for: the first, and each further one.
const (
	firstAnswer = 5 * time.Second
	nextAnswer  = 500 * time.Millisecond
	showTimeout = 4 * time.Second // of the owner itself, loading jobs

	cancelTimeout = 50 * time.Second // of the owner itself, reading the headers of all that waits
)

// answerWaits are how long answers are waited for.
type answerWaits struct{ first, next time.Duration }

// cancelWaits are for owners that read their queues first, one sooner than another.
var cancelWaits = answerWaits{time.Minute, 10 * time.Second}

// inquiry is what a question says besides its subject.
type inquiry struct {
	Limit int `json:"limit"`
}

// keysAnswer is one replica's answer about an api.
type keysAnswer struct {
	dispatcher.APIState
	Deepest []dispatcher.KeyState `json:"deepest"`
}

// keyShown is a key's bucket with the limits that all keys share, as far as they count something.
type keyShown struct {
	dispatcher.KeyDetail
	Limits []limitstate.LimitShown `json:"limits,omitempty"`
}

// Error codes of an answer.
const (
	codeNoAPI  = "404"
	codeNoKey  = "410"
	codeNotOur = "421" // another replica owns the key
	codeFailed = "500"
)

// startOperator answers operators for what this process dispatches, until stop is called.
func startOperator(w *Worker) (stop func() error, err error) {
	service, err := micro.AddService(w.nc, micro.Config{
		Name: operatorService, Version: cli.Version(), QueueGroupDisabled: true,
		Description: "tells operators what waits, and why",
	})
	if err != nil {
		return nil, fmt.Errorf("start the operators' service: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	o := operator{
		dispatch: w.dispatch, levels: &w.levels, follower: w.follower, instance: w.settings.Instance, most: int(w.nc.MaxPayload()), ctx: ctx,
		searching: make(chan struct{}, mostSearches), searches: &sync.WaitGroup{},
	}
	err = errors.Join(
		service.AddEndpoint("keys", micro.HandlerFunc(o.keys), micro.WithEndpointSubject(keysSubject+"*")),
		service.AddEndpoint("show", micro.HandlerFunc(o.show), micro.WithEndpointSubject(showSubject+"*.*")),
		service.AddEndpoint("paused", micro.HandlerFunc(o.paused), micro.WithEndpointSubject(pausedSubject+"*.*")),
		service.AddEndpoint("try", micro.HandlerFunc(o.try), micro.WithEndpointSubject(trySubject+"*")),
		service.AddEndpoint("cancel", micro.HandlerFunc(o.cancel), micro.WithEndpointSubject(cancelSubject+"*")),
		service.AddEndpoint("config", micro.HandlerFunc(o.config), micro.WithEndpointSubject(configSubject)),
	)
	if err != nil {
		cancel(errStopped)
		return nil, errors.Join(fmt.Errorf("start the operators' service: %w", err), service.Stop())
	}
	return func() error {
		err := service.Stop()
		cancel(errStopped)
		o.searches.Wait()
		return err
	}, nil
}

// mostSearches bounds the queues that are searched for jobs at once.
const mostSearches = 4

type operator struct {
	dispatch  *dispatcher.Dispatcher
	levels    *limitstate.Levels
	follower  *follower
	instance  string
	most      int             // bytes of an answer
	ctx       context.Context //nolint:containedctx // micro's handlers are given none; it ends with the service
	searching chan struct{}
	searches  *sync.WaitGroup
}

func (o operator) keys(req micro.Request) {
	api := strings.TrimPrefix(req.Subject(), keysSubject)
	state, err := o.dispatch.State(api)
	if err != nil {
		respondError(req, err)
		return
	}
	deepest, err := o.dispatch.Keys(api, readInquiry(req))
	if err != nil {
		respondError(req, err)
		return
	}
	data := marshal(keysAnswer{state, deepest})
	for len(data) > o.most && len(deepest) > 1 { // keys may be long, and messages short
		deepest = deepest[:len(deepest)/2]
		data = marshal(keysAnswer{state, deepest})
	}
	_ = req.Respond(data) // whoever asked has gone: nothing to do
}

func (o operator) show(req micro.Request) {
	api, token, _ := strings.Cut(strings.TrimPrefix(req.Subject(), showSubject), ".")
	key, err := ingest.ParseToken(token)
	if err != nil {
		respondError(req, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), showTimeout)
	defer cancel()
	detail, err := o.dispatch.Show(ctx, api, key, readInquiry(req))
	if err != nil {
		respondError(req, err)
		return
	}
	shown := keyShown{detail, o.levels.Shown(api)}
	data := marshal(shown)
	for len(data) > o.most && len(shown.Next) > 1 {
		shown.Next = shown.Next[:len(shown.Next)/2]
		data = marshal(shown)
	}
	_ = req.Respond(data)
}

// paused says whether a pause is in force here.
func (o operator) paused(req micro.Request) {
	api, token, _ := strings.Cut(strings.TrimPrefix(req.Subject(), pausedSubject), ".")
	key, err := "", error(nil)
	if token != ingest.Token("") {
		key, err = ingest.ParseToken(token)
	}
	if err != nil {
		respondError(req, err)
		return
	}
	_, paused := o.dispatch.Pauses(api)[key]
	_ = req.Respond(marshal(pausedAnswer{o.instance, o.dispatch.Session(), paused}))
}

// try has an api called once at once whose breaker is open here, and says whether it was.
func (o operator) try(req micro.Request) {
	tries, err := o.dispatch.TryNow(strings.TrimPrefix(req.Subject(), trySubject))
	if err != nil {
		respondError(req, err)
		return
	}
	_ = req.Respond(marshal(tryAnswer{o.instance, tries})) // whoever asked has gone: nothing to do
}

// config says which configuration is followed here.
func (o operator) config(req micro.Request) {
	_ = req.Respond(marshal(o.follower.state(o.instance, o.dispatch.Session()))) // whoever asked has gone: nothing to do
}

// cancel looks for a job, or ends it. It answers from a goroutine of its own: a long queue takes a while to read, and
// other questions must not wait for it.
func (o operator) cancel(req micro.Request) {
	api := strings.TrimPrefix(req.Subject(), cancelSubject)
	var q cancelQuestion
	if err := json.Unmarshal(req.Data(), &q); err != nil {
		respondError(req, fmt.Errorf("the question cannot be read: %w", err))
		return
	}
	select {
	case o.searching <- struct{}{}:
	default:
		respondError(req, errors.New("too many jobs are being cancelled at once: try again"))
		return
	}
	o.searches.Go(func() {
		defer func() { <-o.searching }()
		ctx, cancel := context.WithTimeout(o.ctx, cancelTimeout)
		defer cancel()
		state, err := o.dispatch.State(api)
		if err != nil {
			respondError(req, err)
			return
		}
		reply, wanted := cancelReply{APIState: state}, dispatcher.Cancellation{API: api, Key: q.Key, Job: q.Job, Why: q.Why}
		if q.Look {
			reply.Jobs, err = o.dispatch.Find(ctx, wanted)
		} else {
			reply.Jobs, err = o.dispatch.Cancel(ctx, wanted)
		}
		if err != nil {
			reply.Err = err.Error()
		}
		_ = req.Respond(marshal(reply)) // whoever asked has gone: nothing to do
	})
}

// readInquiry is the limit that was asked for, 1 when nothing sensible was.
func readInquiry(req micro.Request) int {
	var in inquiry
	if json.Unmarshal(req.Data(), &in) != nil {
		return 1
	}
	return in.Limit
}

func respondError(req micro.Request, err error) {
	code := codeFailed
	switch {
	case errors.Is(err, dispatcher.ErrNoAPI):
		code = codeNoAPI
	case errors.Is(err, dispatcher.ErrNoKey):
		code = codeNoKey
	case errors.Is(err, dispatcher.ErrNotOwner):
		code = codeNotOur
	}
	_ = req.Error(code, err.Error(), nil) // whoever asked has gone: nothing to do
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("an answer that JSON cannot carry: " + err.Error())
	}
	return data
}

// operatorError is what a replica answered instead of data.
type operatorError struct{ code, text string }

func (e *operatorError) Error() string { return e.text }

// errNobody says that no dispatching weir is connected to the server.
var errNobody = errors.New("no dispatching weir answers")

// errSilent says that one is connected, and says nothing: it may call all the same.
var errSilent = errors.New("a dispatching weir did not answer")

// ask puts a question to every replica and gives each answer, or the error in its place, to take, until take is
// satisfied or no more come. It fails with errNobody when nobody is there to answer, and with errSilent when nobody has.
func ask(c *connect.Connection, subject string, limit int, take func(data []byte, err *operatorError) (enough bool)) error {
	return askFor(c, subject, marshal(inquiry{limit}), answerWaits{firstAnswer, nextAnswer}, take)
}

func askFor(c *connect.Connection, subject string, question []byte, waits answerWaits, take func(data []byte, err *operatorError) (enough bool)) error {
	inbox := c.Conn.NewRespInbox()
	sub, err := c.Conn.SubscribeSync(inbox)
	if err != nil {
		return c.Explain(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.Conn.PublishRequest(subject, inbox, question); err != nil {
		return c.Explain(err)
	}
	for wait := waits.first; ; wait = waits.next {
		msg, err := sub.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrTimeout) && wait == waits.first:
			return cli.Unreachable(fmt.Errorf("%w within %s at %s: is it stopped, or its machine overloaded?", errSilent, waits.first, c.At))
		case errors.Is(err, nats.ErrNoResponders):
			return cli.Unreachable(fmt.Errorf("%w at %s: start `weir serve` with the role dispatch, or set WEIR_NATS_URL to the server it uses", errNobody, c.At))
		case errors.Is(err, nats.ErrTimeout):
			return nil
		case err != nil:
			return c.Explain(err)
		}
		var wrong *operatorError
		if code := msg.Header.Get(micro.ErrorCodeHeader); code != "" {
			wrong = &operatorError{code, msg.Header.Get(micro.ErrorHeader)}
		}
		if take(msg.Data, wrong) {
			return nil
		}
	}
}

// checkLimit refuses a number of lines that nobody can be asked for.
func checkLimit(limit int) error {
	if limit < 1 || limit > dispatcher.MaxInspected {
		return cli.Usage(errors.New("--limit is 1 to " + strconv.Itoa(dispatcher.MaxInspected)))
	}
	return nil
}
