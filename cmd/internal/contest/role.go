package contest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"weir/cmd/internal/child"
)

// Order is one line from the measurement to a role, which answers with one line.
type Order struct {
	Do   string `json:"do"`             // publish, work, rest
	Jobs int    `json:"jobs,omitempty"` // to publish
	Keys int    `json:"keys,omitempty"` // that they are of, where there are keys: job n has key n modulo Keys
	Body int    `json:"body,omitempty"` // bytes of each
	// Queue is where to publish: where workers look, or where none does.
	Queue string `json:"queue,omitempty"`
}

// Answer is what a role answers to an order. A role's first answer says that it has started.
type Answer struct {
	Error string `json:"error,omitempty"`
	Began int64  `json:"began_ns"` // in Unix time
	Took  int64  `json:"took_ns"`
}

// Settings are what a role is started with, as JSON in its arguments.
type Settings struct {
	Store  string `json:"store"`            // the address of its store; of the API, its own
	Queue  string `json:"queue,omitempty"`  // of a worker; of a producer on NATS what subjects begin with
	API    string `json:"api,omitempty"`    // the URL that a worker calls
	AtOnce int    `json:"at_once"`          // calls, or publishes where each is waited for
	Rate   int    `json:"rate,omitempty"`   // calls a second; 0: no limit
	Worker bool   `json:"worker,omitempty"` // else it publishes
}

// Do carries an order out. It is used by one goroutine.
type Do func(ctx context.Context, o Order) error

// Make starts a role, and returns the function that carries out its orders.
type Make func(ctx context.Context, s Settings) (Do, error)

// Play runs a role of this program until its input ends. The role is one of more, or "nats" (the producer and the worker
// of bare JetStream), or "api".
func Play(ctx context.Context, in io.Reader, out io.Writer, more map[string]Make, name, settings string) error {
	var s Settings
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		return fmt.Errorf("the settings of a role: %w", err)
	}
	role, answers := more[name], json.NewEncoder(out)
	switch {
	case name == "api":
		role = serveAPI
	case name == "nats":
		role = bareRole
	case role == nil:
		return fmt.Errorf("no role has the name %q", name)
	}
	do, err := role(ctx, s)
	if err != nil {
		return answers.Encode(Answer{Error: err.Error()})
	}
	if err := answers.Encode(Answer{}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o Order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("an order that cannot be read: %w", err)
		}
		began := time.Now()
		a := Answer{Began: began.UnixNano()}
		if err := do(ctx, o); err != nil {
			a.Error = err.Error()
		}
		a.Took = time.Since(began).Nanoseconds()
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Role is a process that takes orders. It is used by one goroutine.
type Role struct {
	*child.Process
	name    string
	orders  *os.File
	answers chan string
}

// Order has the role do something and waits for its answer.
func (r *Role) Order(ctx context.Context, o Order) (a Answer, err error) {
	text, err := json.Marshal(o)
	if err == nil {
		_, err = r.orders.Write(append(text, '\n'))
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w\n%s", r.name, err, r.Tail())
	}
	return r.answer(ctx)
}

func (r *Role) answer(ctx context.Context) (a Answer, err error) {
	text, err := line(ctx, r.name, r.Process, r.answers)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, fmt.Errorf("%s answered %q: %w", r.name, text, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", r.name, a.Error)
	}
	return a, nil
}

// LeastBody is the fewest bytes of a body: the number of a job and a blank fit in.
const LeastBody = 16

// Body returns the body of a job of a round: its number, and filling. The API knows the job by it.
func Body(job, size int) []byte {
	body := bytes.Repeat([]byte("x"), size)
	copy(body, strconv.Itoa(job)+" ")
	return body
}

// Caller makes the calls of a worker.
type Caller struct {
	client *http.Client
	url    string
}

// callWithin bounds one call.
const callWithin = time.Minute

// NewCaller returns a Caller of a URL. More calls than atOnce wait for a connection.
func NewCaller(url string, atOnce int) Caller {
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce, MaxConnsPerHost: atOnce, IdleConnTimeout: time.Minute}
	return Caller{client: &http.Client{Transport: transport, Timeout: callWithin}, url: url}
}

// Call makes a job's call. An answer other than 200 is an error.
func (c Caller) Call(ctx context.Context, body []byte) error {
	if _, err := ask(ctx, c.client, http.MethodPost, c.url, body); err != nil {
		return fmt.Errorf("call the api: %w", err)
	}
	return nil
}

// mostAnswer bounds an answer, in bytes: the times of mostJobs jobs, in JSON, are less.
const mostAnswer = 32 * mostJobs

func ask(ctx context.Context, client *http.Client, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New("it answered " + res.Status)
	}
	return text, err
}
