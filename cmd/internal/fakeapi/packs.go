package fakeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
)

// Packs is an api whose calls have a JSON array of jobs. Its Script answers each call with the call's own array, but
// not before Release. It is safe for concurrent use.
type Packs struct {
	mu       sync.Mutex // guards the fields below
	calls    []PackCall
	released chan struct{} // closed by Release; nil until it is needed
}

// PackCall is one call that has arrived.
type PackCall struct {
	Key         string // as in Request.Key
	Idempotency string // the call's idempotency key, or ""
	Body        string // JSON without spaces
}

// Script records a request, waits for Release and answers it. It is a Script.
func (p *Packs) Script(ctx context.Context, r *Request) Behaviour {
	var jobs []json.RawMessage
	var body bytes.Buffer
	if json.Unmarshal(r.Body(), &jobs) != nil || json.Compact(&body, r.Body()) != nil {
		return Behaviour{Status: http.StatusBadRequest}
	}
	p.mu.Lock()
	p.calls = append(p.calls, PackCall{r.Key, r.Header.Get("Idempotency-Key"), body.String()})
	released := p.gateLocked()
	p.mu.Unlock()
	select {
	case <-released:
	case <-ctx.Done():
	}
	return Behaviour{Answer: AnswerText, Text: body.String()}
}

// Calls returns the calls so far, in the order of their arrival.
func (p *Packs) Calls() []PackCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Release answers all waiting and later calls. It must be called once.
func (p *Packs) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gateLocked())
}

func (p *Packs) gateLocked() chan struct{} {
	if p.released == nil {
		p.released = make(chan struct{})
	}
	return p.released
}
