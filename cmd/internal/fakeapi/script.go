package fakeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Request is what a script sees of an arrived call. It is valid until the script returns.
type Request struct {
	// Number counts the arrivals of the ledger, and KeyCall those of this key. Both begin with 1.
	Number, KeyCall int64
	Method          string
	// Path and Query are as sent, still escaped.
	Path, Query string
	Key         string
	Header      http.Header

	call *call
}

// Body reads and returns the request's body. It returns nil if the body is longer than Options.MaxBody, or if the
// client did not send all of it.
func (r *Request) Body() []byte {
	if r.call.readBody() != bodyWhole {
		return nil
	}
	return r.call.scratch.body.Bytes()
}

// Script decides what the api does with a request that has no order of its own. Many goroutines call it at once, and no
// lock is held. It may block, which delays the answer, but not beyond the end of ctx. ctx ends when the client has
// given up or the api closes. The api notices that a client has given up only after it has read the body, so a script
// that blocks must call r.Body first.
type Script func(ctx context.Context, r *Request) Behaviour

// succeed is the script of a working api.
func succeed(context.Context, *Request) Behaviour { return Behaviour{} }

// Counting says which requests a step counts together. The zero value is CountKeys.
type Counting string

const (
	// CountKeys counts the requests of each key.
	CountKeys Counting = ""
	// CountPaths counts the requests of each path.
	CountPaths Counting = "path"
	// CountBodies counts the requests with each body: the attempts of one job.
	CountBodies Counting = "body"
	// CountIDs counts the requests with each Idempotency-Key.
	CountIDs Counting = "id"
	// CountAll counts all requests.
	CountAll Counting = "all"
)

// maxCounted bounds the groups that one step counts. In any further group, every request counts as the first.
const maxCounted = 1 << 20

// Step is one line of a declarative script: a behaviour, and conditions that a request must meet. All conditions must
// be true. A condition with its zero value is always true.
type Step struct {
	// Path must be the request's path or, if it ends in *, the beginning of it.
	Path string `json:"path,omitempty"`
	// Key must be the request's key.
	Key string `json:"key,omitempty"`
	// First and Last bound the number of the request among those with this path and key, from 1, counted as Count says.
	// A Last of 0 is no bound.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
	// Every n takes only each nth of them, counted from First.
	Every int64    `json:"every,omitempty"`
	Count Counting `json:"count,omitempty"`
	// Do is the behaviour, as ParseBehaviour reads it.
	Do string `json:"do"`
}

// Steps returns a script of steps. The first step that takes a request decides. If no step takes a request, it succeeds
// or, if Options.Vendor is set, gets that vendor's answer. Each step counts every request with the step's path and key,
// even if an earlier step takes the request.
func Steps(steps ...Step) (Script, error) {
	counters := make([]*stepCounter, len(steps))
	for i, step := range steps {
		behaviour, err := ParseBehaviour(step.Do)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		switch step.Count {
		case CountKeys, CountPaths, CountBodies, CountIDs, CountAll:
		default:
			return nil, fmt.Errorf("fakeapi: step %d: unknown count %q", i+1, step.Count)
		}
		counters[i] = &stepCounter{step: step, behaviour: behaviour, seen: make(map[string]int64)}
	}
	return func(ctx context.Context, r *Request) Behaviour {
		var taken *stepCounter
		for _, c := range counters {
			if c.takes(r) && taken == nil {
				taken = c
			}
		}
		if taken == nil {
			return r.call.api.opts.Vendor.script()(ctx, r)
		}
		return taken.behaviour
	}, nil
}

// ParseSteps parses a script from a JSON array of steps. Unknown fields are errors.
func ParseSteps(data []byte) (Script, error) {
	var steps []Step
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&steps); err != nil {
		return nil, fmt.Errorf("fakeapi: script: %w", err)
	}
	return Steps(steps...)
}

// stepCounter is a step that counts requests. It is safe for concurrent use.
type stepCounter struct {
	step      Step
	behaviour Behaviour

	mu   sync.Mutex
	seen map[string]int64
}

// takes counts a request and reports whether the step takes it.
func (c *stepCounter) takes(r *Request) bool {
	if !matchPath(c.step.Path, r.Path) || c.step.Key != "" && c.step.Key != r.Key {
		return false
	}
	var group string
	switch c.step.Count {
	case CountKeys:
		group = r.Key
	case CountPaths:
		group = r.Path
	case CountBodies:
		group = string(r.Body())
	case CountIDs:
		group = r.Header.Get(r.call.api.opts.Idempotency.Header)
	case CountAll:
	}
	n := c.count(group)
	first := max(1, c.step.First)
	if n < first || c.step.Last != 0 && n > c.step.Last {
		return false
	}
	return c.step.Every <= 1 || (n-first+1)%c.step.Every == 0
}

func (c *stepCounter) count(group string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.seen[group]; !known && len(c.seen) >= maxCounted {
		return 1
	}
	c.seen[group]++
	return c.seen[group]
}

// matchPath reports whether path is want or, if want ends in *, begins with it. An empty want matches any path.
func matchPath(want, path string) bool {
	if prefix, found := strings.CutSuffix(want, "*"); found {
		return strings.HasPrefix(path, prefix)
	}
	return want == "" || want == path
}
