package fakeapi

import (
	"context"
	"errors"
	"sync"
)

// Repeat says what the api does with a request whose idempotency key it has seen before.
type Repeat string

const (
	// RepeatBilled carries the request out and bills it again: the api is not idempotent. It is the zero value.
	RepeatBilled Repeat = ""
	// RepeatReplayed answers the request from the saved answer and does not bill it, as Stripe does. Its path, method
	// and body must be those of the first request (else 422), and the first must have ended (else 409).
	RepeatReplayed Repeat = "replayed"
	// RepeatAwaited is like RepeatReplayed, but a repeat waits until the first has ended.
	RepeatAwaited Repeat = "awaited"
)

// Idempotency says how the api treats idempotency keys. The zero value reads Idempotency-Key and bills every repeat.
type Idempotency struct {
	// Header is the name of the request header, by default Idempotency-Key.
	Header string
	// Other is the name of another header for a key. The same text in it is a different key.
	Other  string
	Repeat Repeat
}

// of returns the idempotency key of a request with these headers, or "" if it has none.
func (i Idempotency) of(header func(name string) string) string {
	if id := header(i.Header); id != "" || i.Other == "" {
		return id
	}
	if id := header(i.Other); id != "" {
		return i.Other + ": " + id
	}
	return ""
}

func (i Idempotency) validate() error {
	switch i.Repeat {
	case RepeatBilled, RepeatReplayed, RepeatAwaited:
		return nil
	default:
		return errors.New("Idempotency.Repeat must be RepeatBilled, RepeatReplayed or RepeatAwaited")
	}
}

// saved is what is known of an idempotency key.
type saved struct {
	print string        // of the request, as fingerprint returns it
	ended chan struct{} // closed when the running call with this key has ended; nil if none is running
	// The saved answer: number is that of the billed call, or 0 if no call was billed. behaviour makes the answer.
	number    int64
	behaviour Behaviour
}

// memory remembers the newest idempotency keys. It is safe for concurrent use.
type memory struct {
	repeat Repeat
	keep   int

	mu    sync.Mutex
	known map[string]*saved
	order []string // the known keys; once full, the oldest is at next
	next  int
}

// claim says what a call must do about its idempotency key.
type claim struct {
	ending    Ending // Running: carry the call out; Replayed or Conflict: answer with the fields below
	seen      bool
	status    int // for Conflict
	number    int64
	behaviour Behaviour
}

// claim claims an idempotency key for a call. The caller must release a claim whose ending is Running.
func (m *memory) claim(ctx context.Context, id, print string) claim {
	for {
		c, ended := m.try(id, print)
		if ended == nil {
			return c
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return claim{ending: Gone, seen: true}
		}
	}
}

// try claims a key, or returns a channel to wait for.
func (m *memory) try(id, print string) (claim, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.known[id]
	if s == nil {
		m.remember(id, &saved{print: print, ended: make(chan struct{})})
		return claim{}, nil
	}
	switch {
	case m.repeat == RepeatBilled:
		return claim{seen: true}, nil
	case s.print != print && s.print != "":
		return claim{ending: Conflict, seen: true, status: 422}, nil
	case s.ended != nil && m.repeat == RepeatAwaited:
		return claim{}, s.ended
	case s.ended != nil:
		return claim{ending: Conflict, seen: true, status: 409}, nil
	case s.number != 0:
		return claim{ending: Replayed, seen: true, number: s.number, behaviour: s.behaviour}, nil
	default: // the first was not billed
		s.ended, s.print = make(chan struct{}), print
		return claim{seen: true}, nil
	}
}

// release ends a call's use of a key. number is the call's number if the call was billed, else 0. behaviour makes the
// saved answer.
func (m *memory) release(id string, number int64, behaviour Behaviour) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.known[id]
	if s == nil { // forgotten since
		return
	}
	if s.ended != nil {
		close(s.ended)
		s.ended = nil
	}
	if number != 0 && s.number == 0 {
		behaviour.Fault, behaviour.Delay, behaviour.Drip, behaviour.Informational = NoFault, 0, 0, nil
		s.number, s.behaviour = number, behaviour
	}
}

// remember adds a key. If there is no room, it forgets the oldest key. The caller holds the lock.
func (m *memory) remember(id string, s *saved) {
	if len(m.order) < m.keep {
		m.order = append(m.order, id)
	} else {
		m.forget(m.order[m.next])
		m.order[m.next] = id
		m.next = (m.next + 1) % m.keep
	}
	m.known[id] = s
}

func (m *memory) forget(id string) {
	if s := m.known[id]; s != nil && s.ended != nil {
		close(s.ended)
	}
	delete(m.known, id)
}

// restore loads the idempotency keys of a ledger that is continued. The ledger has no answers, so each saved answer is
// the billed status with the short body.
func (m *memory) restore(arrivals []Arrival, keys Idempotency) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range arrivals {
		arr := &arrivals[i]
		id := keys.of(arr.Header)
		if id == "" {
			continue
		}
		s := m.known[id]
		if s == nil {
			s = &saved{print: fingerprint(arr.Method, arr.Path, arr.BodyHash)}
			m.remember(id, s)
		}
		if arr.Billed && s.number == 0 {
			s.number, s.behaviour = arr.Number, Behaviour{Status: max(arr.Status, 200)}
		}
	}
}

// fingerprint distinguishes requests with the same idempotency key. It is "" if the body is unknown.
func fingerprint(method, path, bodyHash string) string {
	if bodyHash == "" {
		return ""
	}
	return method + " " + path + " " + bodyHash
}
