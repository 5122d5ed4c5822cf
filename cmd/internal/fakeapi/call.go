package fakeapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

// scratch is the working memory of one call. Later calls use it again.
type scratch struct {
	body bytes.Buffer
	line []byte // a ledger record
	text []byte // a short answer, or the answers to each job
}

// maxScratch is the largest body buffer, in bytes, that is kept for later calls.
const maxScratch = 64 << 10

// call is one request on its way through the api, in one goroutine.
type call struct {
	api     *API
	w       http.ResponseWriter
	r       *http.Request
	arr     *Arrival // once entered it belongs to the book, and the call reads only fields that settling does not change
	scratch *scratch
	read    bodyState
	hash    string
	seen    bool        // the idempotency key was seen before
	left    allowance   // of the vendor limit
	uses    []allowance // of each use limit; nil: unknown
}

// bodyState says how much of the request's body was read.
type bodyState string

const (
	bodyUnread bodyState = ""
	bodyWhole  bodyState = "whole"
	bodyLong   bodyState = "long" // longer than MaxBody
	bodyCut    bodyState = "cut"  // the client left
)

// ServeHTTP handles one call from its arrival to its end.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := a.clock.now()
	c := &call{api: a, w: w, r: r, arr: a.arrivalOf(r, at), scratch: a.scratch.Get().(*scratch)}
	defer c.giveBack()
	in := a.book.enter(c.arr)
	c.left = in.left
	c.scratch.line = appendArrival(c.scratch.line[:0], c.arr)
	if err := a.ledger.write(c.scratch.line); err != nil {
		c.refuse(http.StatusInternalServerError, err)
		return
	}
	switch {
	case in.err != nil:
		c.refuse(http.StatusServiceUnavailable, in.err)
	case in.wait > 0:
		c.limited(in.wait, nil, nil)
	default:
		c.obey(in.keyCall)
	}
}

// obey decides how the api behaves to the call, and makes it behave so.
func (c *call) obey(keyCall int64) {
	behaviour, ok, err := ordered(c.r, c.arr.Query)
	if !ok && err == nil {
		behaviour = c.api.opts.Script(c.r.Context(), &Request{
			Number: c.arr.Number, KeyCall: keyCall, Method: c.arr.Method, Path: c.arr.Path, Query: c.arr.Query,
			Key: c.arr.Key, Header: c.r.Header, call: c,
		})
		err = behaviour.validate()
	}
	if err != nil {
		c.refuse(http.StatusBadRequest, err)
		return
	}
	if behaviour.Fault == FaultResetHeader {
		c.fault(behaviour, outcome{ending: ResetHeader})
		return
	}
	switch c.readBody() {
	case bodyCut:
		c.leave(outcome{ending: Cut})
	case bodyLong:
		c.refuse(http.StatusRequestEntityTooLarge, nil)
	default:
		c.claim(behaviour)
	}
}

// claim claims the call's idempotency key, if it has one. If the claim allows it, claim then carries out the call.
func (c *call) claim(behaviour Behaviour) {
	id := c.api.opts.Idempotency.of(c.r.Header.Get)
	if id == "" {
		c.work(behaviour)
		return
	}
	got := c.api.memory.claim(c.r.Context(), id, fingerprint(c.arr.Method, c.arr.Path, c.hash))
	c.seen = got.seen
	switch got.ending {
	case Replayed:
		status := got.behaviour.status()
		c.send(got.behaviour, got.number, outcome{ending: Replayed, status: status})
	case Conflict:
		c.send(Behaviour{Status: got.status}, c.arr.Number, outcome{ending: Conflict, status: got.status})
	case Gone:
		c.leave(outcome{ending: Gone})
	default:
		release := func(number int64) { c.api.memory.release(id, number, behaviour) }
		c.workReleasing(behaviour, release)
	}
}

// work carries out a call without an idempotency key.
func (c *call) work(behaviour Behaviour) { c.workReleasing(behaviour, func(int64) {}) }

// workReleasing carries out the call: the informational answers, the delay, the bill, and then the answer or the fault.
// It calls release once, before the client can learn anything. The argument is the call's number if the call was
// billed, else 0.
func (c *call) workReleasing(behaviour Behaviour, release func(number int64)) {
	for _, status := range behaviour.Informational {
		c.w.WriteHeader(status)
	}
	out := outcome{ending: Answered, status: behaviour.status(), release: release}
	if behaviour.bills() {
		s := c.api.book.spend(c.arr, behaviour.Used)
		if c.uses = s.left; s.over != nil {
			c.limited(s.wait, s.over, release)
			return
		}
		out.bill, out.charge, out.used = billed, cmp.Or(behaviour.Charge, c.api.opts.Price), behaviour.Used
	}
	if pause(c.r.Context(), behaviour.Delay+c.api.opts.Latency.of(c.arr.Number)) != nil {
		out.ending, out.status = Gone, 0
		c.leave(out)
	}
	if behaviour.Fault == NoFault {
		c.send(behaviour, c.arr.Number, out)
		return
	}
	c.fault(behaviour, out)
}

// leave settles a call whose client has gone, and ends the call without an answer. It panics with http.ErrAbortHandler,
// because a return from the handler would send an empty 200 to a client that has closed only its own direction.
func (c *call) leave(out outcome) {
	_ = c.settle(out) // after a failed write, every later call and Close fail
	panic(http.ErrAbortHandler)
}

// limited answers a call that exceeds a limit: the use limit over or, if over is nil, the vendor limit. release is nil
// if the call holds no idempotency key.
func (c *call) limited(wait time.Duration, over *UseLimit, release func(int64)) {
	if c.readBody() == bodyCut {
		c.leave(outcome{ending: Cut})
	}
	behaviour := c.api.opts.Vendor.Limited(c.api.opts.Limit.Form)
	if over != nil {
		behaviour = c.api.opts.Vendor.over(behaviour, over, wait)
	}
	behaviour.RetryAfter = c.api.opts.Limit.retryAfter(wait, time.Now())
	c.send(behaviour, c.arr.Number, outcome{ending: Limited, status: behaviour.Status, release: release})
}

// refuse answers a call that the api cannot or must not carry out.
func (c *call) refuse(status int, err error) {
	c.readBody()
	behaviour := Behaviour{Status: status}
	if err != nil {
		behaviour.Answer, behaviour.Text = AnswerText, err.Error()+"\n"
	}
	c.send(behaviour, c.arr.Number, outcome{ending: Refused, status: status})
}

// readBody reads the request's body, once.
func (c *call) readBody() bodyState {
	if c.read != bodyUnread {
		return c.read
	}
	body, limit := &c.scratch.body, c.api.opts.MaxBody
	body.Reset()
	n, err := body.ReadFrom(io.LimitReader(c.r.Body, limit+1))
	switch {
	case err != nil:
		c.read = bodyCut
	case n > limit:
		c.read = bodyLong
	default:
		c.read = bodyWhole
	}
	sum := sha256.Sum256(body.Bytes())
	c.hash = hex.EncodeToString(sum[:])
	return c.read
}

// bill says whether an outcome is billed.
type bill string

const (
	notBilled bill = ""
	billed    bill = "billed"
)

// outcome is how a call is about to be settled.
type outcome struct {
	ending  Ending
	status  int
	bill    bill
	charge  int64
	used    Tokens
	release func(number int64) // of the idempotency key; nil if none is held
}

// settle writes the outcome to the ledger and to the book. If the ledger cannot be written, settle does not bill the
// call and returns the error. Then no part of the ordered answer may be sent.
func (c *call) settle(out outcome) error {
	s := settlement{end: c.api.clock.now(), ending: out.ending, status: out.status, seen: c.seen}
	if out.bill == billed {
		s.billed, s.charge, s.used = true, out.charge, out.used
	}
	if c.read != bodyUnread {
		body := c.scratch.body.Bytes()
		s.bodySize, s.bodyHash = int64(len(body)), c.hash
		s.body = bytes.Clone(body[:min(len(body), c.api.opts.KeepBody)])
	}
	c.scratch.line = appendAnswer(c.scratch.line[:0], c.arr.Number, s)
	err := c.api.ledger.write(c.scratch.line)
	if err != nil {
		s.ending, s.status, s.billed, s.charge = Refused, http.StatusInternalServerError, false, 0
		s.used = Tokens{}
	}
	c.api.book.settle(c.arr, s)
	if out.release != nil {
		var number int64
		if s.billed {
			number = c.arr.Number
		}
		out.release(number)
	}
	return err
}

// end records that a settled call lasted until now.
func (c *call) end() {
	now := c.api.clock.now()
	c.scratch.line = appendEnd(c.scratch.line[:0], c.arr.Number, now)
	_ = c.api.ledger.write(c.scratch.line) // the ledger keeps the error: every later call and Close fail
	c.api.book.finish(c.arr, now)
}

// giveBack returns the call's working memory for later calls.
func (c *call) giveBack() {
	if c.scratch.body.Cap() <= maxScratch {
		c.api.scratch.Put(c.scratch)
	}
}

// pause waits for d. If ctx ends first, it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shortAnswer appends {"call":17,"status":200}.
func shortAnswer(text []byte, number int64, status int) []byte {
	text = append(text, `{"call":`...)
	text = strconv.AppendInt(text, number, 10)
	text = append(text, `,"status":`...)
	text = strconv.AppendInt(text, int64(status), 10)
	return append(text, "}\n"...)
}

// eachAnswer appends one answer for each value in the array of the request's body.
func eachAnswer(text, body []byte, number int64, status int) []byte {
	var values []json.RawMessage
	if json.Unmarshal(body, &values) != nil {
		return shortAnswer(text, number, status)
	}
	type answer struct {
		Call   int64 `json:"call"`
		Status int   `json:"status"`
		At     int   `json:"at"`
	}
	answers := make([]answer, len(values))
	for i := range answers {
		answers[i] = answer{number, status, i}
	}
	all, err := json.Marshal(answers)
	if err != nil {
		panic("fakeapi: numbers cannot be marshalled: " + err.Error())
	}
	return append(append(text, all...), '\n')
}
