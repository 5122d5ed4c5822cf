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

// Order is one line from the measurement to a role. The role answers with one line.
type Order struct {
	Do   string `json:"do"`             // publish, work or rest
	Jobs int    `json:"jobs,omitempty"` // jobs to publish
	Keys int    `json:"keys,omitempty"` // keys of the jobs, if the contender has keys: job n has key n modulo Keys
	Body int    `json:"body,omitempty"` // bytes of each job's body
	// Queue is where to publish: Waiting, or the contender's queue that workers read.
	Queue string `json:"queue,omitempty"`
}

// Answer is a role's answer to an order. A role's first answer means that it has started.
type Answer struct {
	Error string `json:"error,omitempty"`
	Began int64  `json:"began_ns"` // Unix time in nanoseconds
	Took  int64  `json:"took_ns"`
}

// Settings are the settings of a role. The role's last argument holds them as JSON.
type Settings struct {
	Store  string `json:"store"`            // the address of the contender's store; for the API, its own address
	Queue  string `json:"queue,omitempty"`  // a worker's queue; for a producer on NATS, the beginning of the subjects
	API    string `json:"api,omitempty"`    // the URL that a worker calls
	AtOnce int    `json:"at_once"`          // concurrent calls, or concurrent publishes if each is waited for
	Rate   int    `json:"rate,omitempty"`   // calls per second; 0: no limit
	Copies int    `json:"copies,omitempty"` // copies of the streams of bare queues; 0: one
	Worker bool   `json:"worker,omitempty"` // whether it is a worker; else it is a producer
}

// Do carries out an order. It is called from one goroutine.
type Do func(ctx context.Context, o Order) error

// Make starts a role, and returns the function that carries out its orders.
type Make func(ctx context.Context, s Settings) (Do, error)

// Play plays a role of this program until its input ends. name is a name in more, or "nats" (the producer and the
// worker of bare JetStream), or "api".
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

// Role is a process that takes orders. It is not safe for concurrent use.
type Role struct {
	*child.Process
	name    string
	orders  *os.File
	answers chan string
	owes    bool // the role has not answered the last order yet
}

// Order gives an order to the role and waits for the answer. If ctx ended before the role answered the last order,
// Order waits for that answer first.
func (r *Role) Order(ctx context.Context, o Order) (a Answer, err error) {
	if r.owes {
		if _, err := r.line(ctx); err != nil {
			return a, err
		}
	}
	text, err := json.Marshal(o)
	if err == nil {
		_, err = r.orders.Write(append(text, '\n'))
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w\n%s", r.name, err, r.Tail())
	}
	r.owes = true
	return r.answer(ctx)
}

func (r *Role) line(ctx context.Context) (string, error) {
	text, err := line(ctx, r.name, r.Process, r.answers)
	r.owes = r.owes && err != nil
	return text, err
}

func (r *Role) answer(ctx context.Context) (a Answer, err error) {
	text, err := r.line(ctx)
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

// LeastBody is the least size of a body in bytes. A job's number and a blank fit into it.
const LeastBody = 16

// Body returns a job's body: the job's number, a blank, and filling up to size bytes. The API reads the number.
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

// NewCaller returns a Caller for a URL. It makes at most atOnce calls at a time; further ones wait.
func NewCaller(url string, atOnce int) Caller {
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce, MaxConnsPerHost: atOnce, IdleConnTimeout: time.Minute}
	return Caller{client: &http.Client{Transport: transport, Timeout: callWithin}, url: url}
}

// Call makes a job's call. It fails if the answer is not 200.
func (c Caller) Call(ctx context.Context, body []byte) error {
	if _, err := ask(ctx, c.client, http.MethodPost, c.url, body); err != nil {
		return fmt.Errorf("call the api: %w", err)
	}
	return nil
}

// mostAnswer bounds an answer in bytes. The times of mostJobs jobs in JSON fit in.
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
