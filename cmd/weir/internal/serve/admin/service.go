package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/ops/flowsamples"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher"
	"weir/dispatcher/desk"
	"weir/dispatcher/inquiry"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// ServiceOptions are the sources of the answers to operators.
type ServiceOptions struct {
	Conn       *nats.Conn
	Dispatcher *dispatcher.Dispatcher
	Limits     func(api string) []limitstate.LimitShown // returns the levels of an api's shared limits
	Ledger     func() string                            // returns which records of calls are missing, "" if none is
	Clock      func(api string) string                  // says that the clock is behind the clock that counted an api's limits, "" if it is not
	Refresh    func(context.Context)                    // reads the limits' levels anew
	Throttled  func(api string) uint64                  // returns how many jobs this process's intake has refused since it started
	History    *flowsamples.Keeper
	Index      *jobindex.Index
	// ShareUse fills in Shares and Busy of one account. It may ask Redis.
	ShareUse func(ctx context.Context, account string, of *ConfigState)
	Config   func() ConfigState               // returns which configuration is in force; the service adds the instance
	InForce  func() *config.Config            // returns the configuration in force
	Ready    func(ctx context.Context) error  // returns nil if a job could be accepted and dispatched; it may write to the store
	Streams  func() []dispatcher.StreamChange // returns the streams that were recently changed by hand
	Lacking  func() []Lacking                 // returns the NATS servers that lack current copies of streams
	Instance string
	Roles    []string
	Callback func(api string) *CallbackStatus                       // returns how far an api's callback is behind, nil if the api has none
	Posting  func(end EndPlace) *Posting                            // says whether an end was posted, nil if its api has no callback
	Notify   func(ctx context.Context, name, who string) []Notified // posts a test message to the receiver of that name, "" for all receivers
	Log      *slog.Logger
}

// errServiceEnds is the cause with which stop cancels answers that are still being prepared.
var errServiceEnds = errors.New("weir is stopping")

// StartService answers operators' questions about this process until stop is called. stop blocks until all
// answers that aside prepares have ended.
func StartService(s ServiceOptions) (stop func() error, err error) {
	service, err := micro.AddService(s.Conn, micro.Config{
		Name: operatorService, Version: cli.Version(), QueueGroupDisabled: true,
		Description: "tells operators what waits, and why",
		Metadata:    map[string]string{"weir.help": "weir help operations"},
	})
	if err != nil {
		return nil, fmt.Errorf("start the operators' service: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	o := operator{
		ServiceOptions: s, most: int(s.Conn.MaxPayload()), ctx: ctx, searching: make(chan struct{}, mostSearches), inquiring: make(chan struct{}, mostInquiries), listing: make(chan struct{}, mostListings), sharing: make(chan struct{}, mostMoves), notifying: make(chan struct{}, mostTests), searches: &sync.WaitGroup{},
		started: time.Now(), ready: &readiness{look: s.Ready},
	}
	err = errors.Join(
		service.AddEndpoint("keys", micro.HandlerFunc(o.keys), micro.WithEndpointSubject(keysSubject.Each(1)), described(string(keysSubject)+"<api>", "viewer", keysAnswer{})),
		service.AddEndpoint("show", micro.HandlerFunc(o.show), micro.WithEndpointSubject(showSubject.Each(2)), described(string(showSubject)+"<api>.<key>", "viewer", KeyShown{})),
		service.AddEndpoint("paused", micro.HandlerFunc(o.paused), micro.WithEndpointSubject(pausedSubject.Each(2)), described(string(pausedSubject)+"<api>.<key>", "viewer", pausedAnswer{})),
		service.AddEndpoint("try", micro.HandlerFunc(o.try), micro.WithEndpointSubject(trySubject.Each(1)), described(string(trySubject)+"<api>", "operator", tryAnswer{})),
		service.AddEndpoint("cancel", micro.HandlerFunc(o.cancel), micro.WithEndpointSubject(cancelSubject.Each(1)), described(string(cancelSubject)+"<api>", "operator", jobsReply[desk.CancelAnswer]{})),
		service.AddEndpoint("reconcile", micro.HandlerFunc(o.reconcile), micro.WithEndpointSubject(reconcileSubject.Each(1)), described(string(reconcileSubject)+"<api>", "operator", inquiry.Reconciled{})),
		service.AddEndpoint("config", micro.HandlerFunc(o.configuration), micro.WithEndpointSubject(configSubject), described(configSubject, "viewer", ConfigState{})),
		service.AddEndpoint("status", micro.HandlerFunc(o.status), micro.WithEndpointSubject(statusSubject), described(statusSubject, "viewer", ReplicaStatus{})),
		service.AddEndpoint("notify", micro.HandlerFunc(o.notify), micro.WithEndpointSubject(notifySubject), oneAnswers, described(notifySubject, "operator", []Notified{})),
		service.AddEndpoint("history", micro.HandlerFunc(o.history), micro.WithEndpointSubject(historySubject.Each(1)), described(string(historySubject)+"<api>", "viewer", pastAnswer{})),
		service.AddEndpoint("jobs", micro.HandlerFunc(o.unfinished), micro.WithEndpointSubject(jobsSubject), described(jobsSubject, "viewer", unfinishedReply{})),
		service.AddEndpoint("ended", micro.HandlerFunc(o.ended), micro.WithEndpointSubject(endedSubject), oneAnswers, described(endedSubject, "viewer", jobindex.Page{})),
		service.AddEndpoint("traces", micro.HandlerFunc(o.traces), micro.WithEndpointSubject(tracesSubject), oneAnswers, described(tracesSubject, "viewer", jobindex.Traces{})),
		service.AddEndpoint("spent", micro.HandlerFunc(o.spent), micro.WithEndpointSubject(spentSubject), oneAnswers, described(spentSubject, "viewer", spend.Account{})),
		service.AddEndpoint("use", micro.HandlerFunc(o.use), micro.WithEndpointSubject(useSubject.Each(1)), oneAnswers, described(string(useSubject)+"<api>", "viewer", spend.Use{})),
		service.AddEndpoint("find", micro.HandlerFunc(o.find), micro.WithEndpointSubject(findSubject.Each(1)), described(string(findSubject)+"<api>", "viewer", jobsReply[desk.QueuedJob]{})),
	)
	if err != nil {
		cancel(errServiceEnds)
		return nil, errors.Join(fmt.Errorf("start the operators' service: %w", err), service.Stop())
	}
	return func() error {
		err := service.Stop()
		cancel(errServiceEnds)
		o.searches.Wait()
		return err
	}, nil
}

// described adds metadata to an endpoint for the tools of NATS: the subject of questions, the role that a user needs to
// ask, and the schema of one replica's answer.
func described(subject, role string, answer any) micro.EndpointOpt {
	return micro.WithEndpointMetadata(map[string]string{"weir.subject": subject, "weir.role": role, "weir.schema.response": ingest.Schema(answer)})
}

// mostSearches bounds the searches of queues that run at once.
const mostSearches = 4

// mostListings bounds the lists of jobs and the sums of spending that are made at once.
const mostListings = 8

// mostMoves bounds the questions about the use of accounts that are answered at once.
const mostMoves = 8

// mostTests bounds the tests of receivers that run at once.
const mostTests = 1

// mostInquiries bounds the inquiries about letters that run at once.
const mostInquiries = 4

type operator struct {
	ServiceOptions
	most      int             // the most bytes of an answer
	ctx       context.Context //nolint:containedctx // micro's handlers are given none; it ends with the service
	searching chan struct{}
	inquiring chan struct{}
	listing   chan struct{}
	sharing   chan struct{}
	notifying chan struct{}
	searches  *sync.WaitGroup
	started   time.Time
	ready     *readiness
}

func (o operator) keys(req micro.Request) {
	api := apiAsked(keysSubject, req.Subject())
	state, err := o.Dispatcher.Desk.State(api)
	if err != nil {
		respondError(req, err)
		return
	}
	var in question
	if json.Unmarshal(req.Data(), &in) != nil {
		in = question{Limit: 1}
	}
	deepest, err := o.Dispatcher.Desk.KeysPage(api, desk.KeysWanted{Limit: in.Limit, After: in.After, Match: in.Match})
	if err != nil {
		respondError(req, err)
		return
	}
	answer := keysAnswer{APIState: state, Deepest: deepest}
	if answer.Resting, answer.RestingAll, err = o.Dispatcher.Desk.PausedEmpty(api, readInquiry(req)); err != nil {
		respondError(req, err)
		return
	}
	data := marshal(answer)
	for len(data) > o.most && len(answer.Deepest)+len(answer.Resting) > 1 { // keys may be long, and messages short
		answer.Deepest, answer.Resting = answer.Deepest[:(len(answer.Deepest)+1)/2], answer.Resting[:len(answer.Resting)/2]
		data = marshal(answer)
	}
	_ = req.Respond(data) // on an error the asking process has gone
}

func (o operator) show(req micro.Request) {
	api, key, err := keyAsked(showSubject, req.Subject())
	if err != nil {
		respondError(req, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), showTimeout)
	defer cancel()
	detail, err := o.Dispatcher.Desk.Show(ctx, api, key, readInquiry(req))
	if err != nil {
		respondError(req, err)
		return
	}
	shown := KeyShown{KeyDetail: detail, Callback: o.Callback(api)}
	if state, err := o.Dispatcher.Desk.Detail(api, 0); err == nil {
		shown.Limits = limitstate.WithUses(o.Limits(api), state.Uses, o.Instance)
	}
	data := marshal(shown)
	for len(data) > o.most && len(shown.Next) > 1 {
		shown.Next = shown.Next[:len(shown.Next)/2]
		data = marshal(shown)
	}
	_ = req.Respond(data)
}

// paused answers whether a pause of an api or key is in force in this process.
func (o operator) paused(req micro.Request) {
	api, key, err := keyAsked(pausedSubject, req.Subject())
	if err != nil {
		respondError(req, err)
		return
	}
	p, paused := o.Dispatcher.Desk.Pauses(api)[key]
	_ = req.Respond(marshal(pausedAnswer{o.Instance, o.Dispatcher.Session(), paused, p.Until}))
}

// try makes this replica call an api at once if the api's breaker is open, and answers whether it was open.
func (o operator) try(req micro.Request) {
	tries, err := o.Dispatcher.Desk.TryNow(apiAsked(trySubject, req.Subject()))
	if err != nil {
		respondError(req, err)
		return
	}
	_ = req.Respond(marshal(tryAnswer{o.Instance, tries})) // on an error the asking process has gone
}

// configuration answers which configuration this replica follows. If the question names an account, the answer also
// says what the replica knows of its use of the account.
func (o operator) configuration(req micro.Request) {
	state := func() ConfigState {
		state := o.Config()
		state.Instance, state.Session = o.Instance, o.Dispatcher.Session()
		return state
	}
	var in useQuestion
	if json.Unmarshal(req.Data(), &in) != nil || in.Account == "" {
		_ = req.Respond(marshal(state())) // on an error the asking process has gone
		return
	}
	o.aside(req, o.sharing, "too many moves of shares at a time", useWithin, o.contained(func(ctx context.Context) (any, error) {
		of := state()
		o.ShareUse(ctx, in.Account, &of)
		return of, nil
	}))
}

// aside prepares the answer in a goroutine of its own, so that other questions do not wait for it. If all slots are
// taken, it sends the error busy.
func (o operator) aside(req micro.Request, slots chan struct{}, busy string, within time.Duration, answer func(ctx context.Context) (any, error)) {
	select {
	case slots <- struct{}{}:
	default:
		respondError(req, errors.New(busy))
		return
	}
	o.searches.Go(func() {
		defer func() { <-slots }()
		ctx, cancel := context.WithTimeout(o.ctx, within)
		defer cancel()
		reply, err := answer(ctx)
		if err != nil {
			respondError(req, err)
			return
		}
		_ = req.Respond(marshal(reply)) // on an error the asking process has gone
	})
}

// contained returns a function that calls answer and turns a panic into an error. Every replica gets the same question,
// so without contained a question that crashes one replica would crash all of them. contained is only for answers that
// read: after a panic, an answer that changes what jobs share must not continue.
func (o operator) contained(answer func(ctx context.Context) (any, error)) func(ctx context.Context) (any, error) {
	return func(ctx context.Context) (reply any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				o.Log.Error("weir crashed over an operator's question", "err", cause, "stack", string(debug.Stack()))
				reply, err = nil, fmt.Errorf("weir crashed over the question: %v", cause)
			}
		}()
		return answer(ctx)
	}
}

// readInquiry returns the question's limit, or 1 if the question cannot be read.
func readInquiry(req micro.Request) int {
	var in question
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
	case errors.Is(err, desk.ErrNoKey):
		code = codeNoKey
	case errors.Is(err, dispatcher.ErrNotOwner):
		code = codeNotOur
	case errors.Is(err, ledger.ErrNoLedger):
		code = codeNoLedger
	case errors.Is(err, inquiry.ErrNoInquiry), errors.Is(err, inquiry.ErrNoOperation):
		code = codeNoInquiry
	case heldBy(err):
		code = codeHeld
	}
	_ = req.Error(code, err.Error(), nil) // on an error the asking process has gone
}
