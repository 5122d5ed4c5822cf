package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"weir/dispatcher"
	"weir/ingest"
)

// Operators' questions to the running dispatchers. Every replica answers every question for what it owns, so there is no
// queue group; whoever asks gathers the answers.
const (
	operatorService = "weir-operator"
	keysSubject     = "weir.operator.keys." // + api
	showSubject     = "weir.operator.show." // + api.keytoken
)

// How long answers are waited for: the first, and each further one.
const (
	firstAnswer = 5 * time.Second
	nextAnswer  = 500 * time.Millisecond
	showTimeout = 4 * time.Second // of the owner itself, loading jobs
)

// inquiry is what a question says besides its subject.
type inquiry struct {
	Limit int `json:"limit"`
}

// keysAnswer is one replica's answer about an api.
type keysAnswer struct {
	dispatcher.APIState
	Deepest []dispatcher.KeyState `json:"deepest"`
}

// Error codes of an answer.
const (
	codeNoAPI  = "404"
	codeNoKey  = "410"
	codeNotOur = "421" // another replica owns the key
	codeFailed = "500"
)

// startOperator answers operators for what this process dispatches, until stop is called.
func startOperator(nc *nats.Conn, d *dispatcher.Dispatcher) (stop func() error, err error) {
	service, err := micro.AddService(nc, micro.Config{
		Name: operatorService, Version: version(), QueueGroupDisabled: true,
		Description: "tells operators what waits, and why",
	})
	if err != nil {
		return nil, fmt.Errorf("start the operators' service: %w", err)
	}
	o := operator{dispatch: d, most: int(nc.MaxPayload())}
	err = errors.Join(
		service.AddEndpoint("keys", micro.HandlerFunc(o.keys), micro.WithEndpointSubject(keysSubject+"*")),
		service.AddEndpoint("show", micro.HandlerFunc(o.show), micro.WithEndpointSubject(showSubject+"*.*")),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the operators' service: %w", err), service.Stop())
	}
	return service.Stop, nil
}

type operator struct {
	dispatch *dispatcher.Dispatcher
	most     int // bytes of an answer
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
	data := marshal(detail)
	for len(data) > o.most && len(detail.Next) > 1 {
		detail.Next = detail.Next[:len(detail.Next)/2]
		data = marshal(detail)
	}
	_ = req.Respond(data)
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

// ask puts a question to every replica and gives each answer, or the error in its place, to take, until take is
// satisfied or no more come. It fails with errNobody when nobody answered at all.
func (c *connection) ask(subject string, limit int, take func(data []byte, err *operatorError) (enough bool)) error {
	inbox := c.nc.NewRespInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return c.explain(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(subject, inbox, marshal(inquiry{limit})); err != nil {
		return c.explain(err)
	}
	for wait := firstAnswer; ; wait = nextAnswer {
		msg, err := sub.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout) && wait == firstAnswer:
			return unreachable(fmt.Errorf("%w at %s: start `weir serve` with the role dispatch, or set WEIR_NATS_URL to the server it uses", errNobody, c.at))
		case errors.Is(err, nats.ErrTimeout):
			return nil
		case err != nil:
			return c.explain(err)
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
		return usage(errors.New("--limit is 1 to " + strconv.Itoa(dispatcher.MaxInspected)))
	}
	return nil
}
