//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// order is one line from the measurement to a role, which answers with one line.
type order struct {
	Do   string `json:"do"`             // publish, work, rest
	Jobs int    `json:"jobs,omitempty"` // to publish
	Keys int    `json:"keys,omitempty"` // that they are of, where there are keys
	Body int    `json:"body,omitempty"` // bytes of each
	// Queue is where to publish: busy, where workers look, or waiting, where none does.
	Queue string `json:"queue,omitempty"`
}

// answer is a role's to an order. The first of a role says that it is there.
type answer struct {
	Error string `json:"error,omitempty"`
	Began int64  `json:"began_ns"` // in Unix time
	Took  int64  `json:"took_ns"`
}

// settings are what a role is started with, as JSON in its arguments.
type settings struct {
	Store  string `json:"store"`            // the address of its store
	Queue  string `json:"queue,omitempty"`  // of a worker; of a producer on NATS what subjects begin with
	API    string `json:"api,omitempty"`    // the URL that a worker calls
	AtOnce int    `json:"at_once"`          // calls, or publishes where each is waited for
	Rate   int    `json:"rate,omitempty"`   // calls a second; 0: no limit
	Worker bool   `json:"worker,omitempty"` // else it publishes
}

// role does what it is ordered. It is used by one goroutine.
type role func(ctx context.Context, o order) error

// play runs a role of this program until its input ends.
func play(ctx context.Context, name string, s settings) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	out := json.NewEncoder(os.Stdout)
	var do role
	var err error
	switch name {
	case "nats":
		do, err = natsRole(ctx, s)
	case "river":
		do, err = riverRole(ctx, s)
	case "asynq":
		do, err = asynqRole(s)
	default:
		err = fmt.Errorf("no role has the name %q", name)
	}
	if err != nil {
		return out.Encode(answer{Error: err.Error()})
	}
	if err := out.Encode(answer{}); err != nil {
		return err
	}
	go func() { <-ctx.Done(); _ = os.Stdin.Close() }()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("an order that cannot be read: %w", err)
		}
		began := time.Now()
		a := answer{Began: began.UnixNano()}
		if err := do(ctx, o); err != nil {
			a.Error = err.Error()
		}
		a.Took = time.Since(began).Nanoseconds()
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// bodyOf is the body of a job of a round: its number, and filling. The api knows the job by it.
func bodyOf(job, size int) []byte {
	body := bytes.Repeat([]byte("x"), size)
	copy(body, strconv.Itoa(job)+" ")
	return body
}

// caller makes the calls of a worker in Go.
type caller struct {
	client *http.Client
	url    string
}

// callWithin bounds one call.
const callWithin = time.Minute

func newCaller(s settings) caller {
	// More calls than that wait for a connection, whatever the number of workers is.
	transport := &http.Transport{MaxIdleConnsPerHost: s.AtOnce, MaxConnsPerHost: s.AtOnce, IdleConnTimeout: time.Minute}
	return caller{client: &http.Client{Transport: transport, Timeout: callWithin}, url: s.API}
}

func (c caller) call(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call the api: %w", err)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("call the api: %w", err)
	}
	_, err = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answered %s", res.Status)
	}
	if err != nil {
		return fmt.Errorf("call the api: %w", err)
	}
	return nil
}
