package fakeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Request is what a script sees of a call that has arrived. It is valid until the script returns.
type Request struct {
	// Number counts the arrivals of the ledger, KeyCall those of this key; both from 1.
	Number, KeyCall int64
	Method          string
	// Path and Query are as sent, still escaped.
	Path, Query string
	Key         string
	Header      http.Header

	call *call
}

// Body reads and returns the request's body, cut at Options.MaxBody; nil if the client did not send all of it.
func (r *Request) Body() []byte {
	if r.call.readBody() != bodyWhole {
		return nil
	}
	return r.call.scratch.body.Bytes()
}

// Script decides what the api does with a request that brings no order of its own. It is called from many goroutines at once, with
// no lock held; it may block, which delays the answer, but not beyond the end of ctx (the client gave up, or the api closes). That the
// client gave up is noticed only once the body has been read, so a script that blocks calls r.Body first.
type Script func(ctx context.Context, r *Request) Behaviour

// succeed is the script of an api that works.
func succeed(context.Context, *Request) Behaviour { return Behaviour{} }

// Counting says which requests a step counts together. The zero value is CountKeys.
type Counting string

const (
	// CountKeys counts the requests of each key for itself.
	CountKeys Counting = ""
	// CountPaths counts the requests of each path for itself.
	CountPaths Counting = "path"
	// CountBodies counts requests with the same body together: the attempts of one job.
	CountBodies Counting = "body"
	// CountIDs counts requests with the same Idempotency-Key together.
	CountIDs Counting = "id"
	// CountAll counts all.
	CountAll Counting = "all"
)

// maxCounted bounds the things one step counts apart; requests of more match as if they were all the first.
const maxCounted = 1 << 20

// Step is one line of a declarative script: which requests, and what becomes of them. All conditions must hold; the zero value
// of each holds always.
type Step struct {
	// Path must be the request's path, or with a * at its end, begin it.
	Path string `json:"path,omitempty"`
	// Key must be the request's key.
	Key string `json:"key,omitempty"`
	// Of the requests with that path and key, counted apart as Count says, it takes those numbered First to Last, from 1; a Last
	// of 0 is no end.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
	// Every n takes only each nth of them, counted from First.
	Every int64    `json:"every,omitempty"`
	Count Counting `json:"count,omitempty"`
	// Do is the behaviour, in the words of ParseBehaviour.
	Do string `json:"do"`
}

// Steps makes a script of steps. The first that takes a request decides; a request that none takes succeeds. Each step counts
// every request with its path and key, also those an earlier step takes.
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
	return func(_ context.Context, r *Request) Behaviour {
		var taken *stepCounter
		for _, c := range counters {
			if c.takes(r) && taken == nil {
				taken = c
			}
		}
		if taken == nil {
			return Behaviour{}
		}
		return taken.behaviour
	}, nil
}

// ParseSteps reads a script from a JSON array of steps. Unknown fields are errors.
func ParseSteps(data []byte) (Script, error) {
	var steps []Step
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&steps); err != nil {
		return nil, fmt.Errorf("fakeapi: script: %w", err)
	}
	return Steps(steps...)
}

// stepCounter is a step at work. Safe for concurrent use.
type stepCounter struct {
	step      Step
	behaviour Behaviour

	mu   sync.Mutex
	seen map[string]int64
}

// takes counts a request and says whether the step decides about it.
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

// matchPath says whether a path is the wanted one, or begins with it where that ends in *. Empty wants any.
func matchPath(want, path string) bool {
	if prefix, found := strings.CutSuffix(want, "*"); found {
		return strings.HasPrefix(path, prefix)
	}
	return want == "" || want == path
}
