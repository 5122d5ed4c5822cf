package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// errClosing is the cause with which running calls end when the api closes.
var errClosing = errors.New("fakeapi: closing")

// API is a running fake api. All methods are safe for concurrent use, even after Close.
type API struct {
	opts     Options
	recorded []string // canonical names of the headers that are recorded in addition to X-… and User-Agent
	url      string
	started  time.Time // the wall clock's time when the ledger began
	clock    clock
	book     *book
	ledger   *ledgerFile // nil: memory only
	memory   *memory
	scratch  sync.Pool // of *scratch

	server *http.Server
	conns  sync.WaitGroup // open connections
	served chan struct{}  // closed when the accept loop has ended
	cancel context.CancelCauseFunc
	close  func() error
}

// Start starts an api that listens and serves until Close.
func Start(opts Options) (*API, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &API{
		opts:   opts,
		book:   newBook(opts),
		memory: &memory{repeat: opts.Idempotency.Repeat, keep: opts.MaxKeys, known: make(map[string]*saved)},
		served: make(chan struct{}),
	}
	a.scratch.New = func() any { return new(scratch) }
	for _, name := range append(slices.Clone(opts.Headers), opts.Idempotency.Header, opts.Idempotency.Other) {
		if name != "" {
			a.recorded = append(a.recorded, http.CanonicalHeaderKey(name))
		}
	}
	if err := a.open(); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", opts.Listen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fakeapi: listen: %w", err), a.ledger.close())
	}
	a.url = "http://" + listener.Addr().String()
	a.serve(listener)
	return a, nil
}

// open begins the ledger, or continues an existing one.
func (a *API) open() error {
	now := instantNow()
	a.started = now.wall
	a.clock = clock{base: time.Now()}
	if a.opts.Ledger == "" {
		return nil
	}
	ledger, past, offset, err := openLedger(a.opts.Ledger, now)
	if err != nil {
		return err
	}
	a.ledger = ledger
	a.clock.offset = offset
	if past.Runs > 0 {
		a.started = past.Started
	}
	a.book.restore(past.Arrivals)
	a.memory.restore(past.Arrivals, a.opts.Idempotency)
	return nil
}

// serve starts the accept loop.
func (a *API) serve(listener net.Listener) {
	ctx, cancel := context.WithCancelCause(context.Background())
	a.cancel = cancel
	a.close = sync.OnceValue(a.shut)
	a.server = &http.Server{
		Handler:           a,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState:         a.track,
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	go func() {
		defer close(a.served)
		_ = a.server.Serve(listener) // always http.ErrServerClosed: only Close ends it
	}()
}

// track counts the open connections, so that Close can wait for the last call.
func (a *API) track(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		a.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		a.conns.Done()
	}
}

// URL returns the api's address, as in "http://127.0.0.1:port", without a path.
func (a *API) URL() string { return a.url }

// Started returns the wall clock's time when the ledger began. An arrival's wall time is
// Started().Add(time.Duration(arrival.At)).
func (a *API) Started() time.Time { return a.started }

// Close ends the running calls, waits until all calls have ended, and closes the ledger. If a write of the ledger
// failed, Close returns the first such error. A second call does nothing and returns the same error.
func (a *API) Close() error { return a.close() }

func (a *API) shut() error {
	a.cancel(errClosing)
	err := a.server.Close()
	<-a.served
	a.conns.Wait()
	return errors.Join(err, a.ledger.close())
}

// All returns the arrivals in memory, ordered by time. They are copies, but Fields and Body are shared and must not be
// changed. While All copies, new arrivals wait.
func (a *API) All() []Arrival {
	return a.book.snapshot(func(*Arrival) bool { return true })
}

// Arrivals returns the kept arrivals of one key, as All does.
func (a *API) Arrivals(key string) []Arrival {
	return a.book.snapshot(func(arr *Arrival) bool { return arr.Key == key })
}

// Keys returns all keys so far, sorted. The key "" stands for requests without a key.
func (a *API) Keys() []string { return a.book.keyNames() }

// Totals returns the counts since the ledger began.
func (a *API) Totals() Totals { return a.book.totalsNow() }

// Await blocks until reached returns true for the totals. If ctx ends first, Await returns ctx's cause. reached is
// called after every arrival and every end, while the book's lock is held. So it must be quick, must not call the api,
// and must not keep the map.
func (a *API) Await(ctx context.Context, reached func(Totals) bool) error {
	return a.book.await(ctx, reached)
}
