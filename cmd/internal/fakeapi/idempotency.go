package fakeapi

import (
	"context"
	"errors"
	"sync"
)

// Repeat says what happens to a request with an idempotency key that was seen before.
type Repeat string

const (
	// RepeatBilled carries it out and bills it again: an api that is not idempotent. It is the zero value.
	RepeatBilled Repeat = ""
	// RepeatReplayed answers it from the saved answer and does not bill it, as Stripe does. Its path, method and body must be the
	// same (else 422), and the first must have ended (else 409).
	RepeatReplayed Repeat = "replayed"
	// RepeatAwaited is RepeatReplayed, except that a repeat waits for the first to end.
	RepeatAwaited Repeat = "awaited"
)

// Idempotency says how the api treats idempotency keys. The zero value reads Idempotency-Key and bills every repeat.
type Idempotency struct {
	// Header is the name of the request header, by default Idempotency-Key.
	Header string
	// Other is the name of another header that may carry a key. The same text in it is another key.
	Other  string
	Repeat Repeat
}

// of returns the idempotency key of a request with these headers; empty if it has none.
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
	print string        // of the request: method, path, body
	ended chan struct{} // closed when the call using the key has ended; nil if none is running
	// The answer, as the behaviour that makes it and the number of the call that was billed; 0 if none was yet.
	number    int64
	behaviour Behaviour
}

// memory remembers the idempotency keys of the newest calls. Safe for concurrent use.
type memory struct {
	repeat Repeat
	keep   int

	mu    sync.Mutex
	known map[string]*saved
	order []string // known keys, oldest at next once it is full
	next  int
}

// claim is what a call may do with its idempotency key.
type claim struct {
	ending    Ending // Running: carry it out; Replayed or Conflict: answer as below
	seen      bool
	status    int // for Conflict
	number    int64
	behaviour Behaviour
}

// claim takes an idempotency key for a call. A claim whose ending is Running must be released.
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

// try claims a key, or returns what to wait for.
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

// release ends the use of a key by a call. number is the call's if it was billed, else 0; behaviour makes the saved answer.
func (m *memory) release(id string, number int64, behaviour Behaviour) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.known[id]
	if s == nil { // forgotten meanwhile
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

// remember adds a key, forgetting the oldest if there is no room. The caller holds the lock.
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

// restore loads the idempotency keys of a ledger that is being continued. The ledger does not hold answers: the saved
// answer is the billed status with the short body.
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

// fingerprint distinguishes requests that share an idempotency key. It is empty if the body is not known.
func fingerprint(method, path, bodyHash string) string {
	if bodyHash == "" {
		return ""
	}
	return method + " " + path + " " + bodyHash
}
