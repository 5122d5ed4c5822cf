package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go"
)

// producers submit jobs until they are stopped. There is one producer for each key. A producer waits for each receipt
// before it sends the next job, so that the right order is known. After weir was down, it submits the jobs that became
// due.
type producers struct {
	conns []*nats.Conn
	log   *os.File
	work  sync.WaitGroup
	stop  context.CancelFunc

	quiet  atomic.Bool  // producers must submit no new jobs
	busy   atomic.Int64 // producers that are submitting
	crowds atomic.Int64

	mu       sync.Mutex
	receipts []judge.Receipt
	troubles []judge.Trouble
	err      error
}

// answerWithin is how long a producer waits for an answer before it sends the job again.
const answerWithin = 2 * time.Second

// startProducers starts the producers, which submit jobs until end is called. A job that has no answer then is still
// submitted until it has one, or until ctx ends. Each producer prefers one of the servers.
func startProducers(ctx context.Context, urls []string, dir string, loads []plan.Load, as []nats.Option) (*producers, error) {
	log, err := os.OpenFile(filepath.Join(dir, "receipts.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the producers' log: %w", err)
	}
	ending, stop := context.WithCancel(ctx)
	p := &producers{log: log, stop: stop}
	for i := range urls {
		nc, err := nats.Connect(strings.Join(slices.Concat(urls[i:], urls[:i]), ","), append(slices.Clone(as), nats.Name("torture producer"), nats.DontRandomize(),
			nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
			nats.RetryOnFailedConnect(true), nats.PingInterval(5*time.Second), nats.ErrorHandler(nothingNew))...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect the producers: %w", err), p.end())
		}
		p.conns = append(p.conns, nc)
	}
	for i, l := range loads {
		p.work.Go(func() { p.produce(ctx, ending, p.conns[i%len(p.conns)], l) })
	}
	return p, nil
}

func (p *producers) produce(ctx, ending context.Context, nc *nats.Conn, l plan.Load) {
	due, left := time.Now(), l.First
	for n := 0; ending.Err() == nil; n++ {
		if left == 0 {
			due, left = due.Add(l.Every), l.Many
			if !stream.Sleep(ending, time.Until(due)) {
				return
			}
		}
		if p.beQuiet(ending) {
			due = time.Now() // skip the jobs that became due meanwhile
		}
		left--
		p.busy.Add(1)
		err := p.submit(ctx, nc, l.Job(n))
		p.busy.Add(-1)
		if err != nil {
			p.report(err)
			return
		}
	}
}

// beQuiet waits while no new jobs are wanted. It reports whether it has waited.
func (p *producers) beQuiet(ctx context.Context) (waited bool) {
	for p.quiet.Load() && stream.Sleep(ctx, 20*time.Millisecond) {
		waited = true
	}
	return waited
}

// report stores an error for end to return.
func (p *producers) report(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}

// submit sends one job until it is answered, and records the answer.
func (p *producers) submit(ctx context.Context, nc *nats.Conn, j plan.Job) error {
	msg := &nats.Msg{Subject: "weir.jobs." + plan.APIName + "." + j.Key, Data: fmt.Appendf(nil, `{"id":%q}`, j.ID), Header: nats.Header{
		"Nats-Msg-Id": {j.ID}, "Weir-Path": {"/" + j.Key},
	}}
	if j.Ask != "" {
		msg.Header["Weir-Query"] = []string{j.Ask}
	}
	if j.Large != nil {
		msg.Data, msg.Header["Weir-Query"] = j.Large, []string{plan.JobQuery + j.ID}
	}
	if j.Tokens != nil {
		j.Tokens.Describe(msg, j.ID)
	}
	if j.Priority != bucket.Normal {
		msg.Header["Weir-Priority"] = []string{j.Priority.String()}
	}
	start := time.Now()
	for tries := 1; ; tries++ {
		answer, err := nc.RequestMsg(msg, answerWithin)
		if err == nil {
			r, again, err := readAnswer(answer.Data)
			if err != nil {
				return fmt.Errorf("job %s: %w", j.ID, err)
			}
			if again == "" {
				r.ID, r.Key, r.Priority, r.Ask = j.ID, j.Key, j.Priority, j.Ask
				r.Tries, r.At, r.Waited = tries, time.Now(), time.Since(start)
				return p.keep(r)
			}
			p.trouble(again)
			if again == absent && !stream.Sleep(ctx, 200*time.Millisecond) { // each such try leaves a letter
				return nil
			}
		} else {
			p.trouble(err.Error())
		}
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			return nil // without a receipt nothing was promised
		}
	}
}

func (p *producers) trouble(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.troubles = append(p.troubles, judge.Trouble{At: time.Now(), What: what})
}

// absent is the answer that the api is not in the configuration. The job must be sent again.
const absent = "404"

// readAnswer parses weir's answer. again says why the job must be sent again; it is "" if the answer is a receipt or a
// 429.
func readAnswer(data []byte) (r judge.Receipt, again string, err error) {
	var a struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		Letter uint64 `json:"dead_letter_seq"`
		Error  *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return r, "", fmt.Errorf("an answer that is no receipt: %q", data)
	}
	r = judge.Receipt{Stream: a.Stream, Seq: a.Seq, Letter: a.Letter}
	switch {
	case a.Error == nil && a.Seq > 0:
		return r, "", nil
	case a.Error == nil:
		return r, "", fmt.Errorf("a receipt without a sequence: %q", data)
	case a.Error.Code == 503:
		return r, "503", nil
	case a.Error.Code == 404:
		return r, absent, nil
	case a.Error.Code == 429:
		r.Code = 429
		return r, "", nil
	}
	return r, "", fmt.Errorf("refused for a reason that this load does not give: %s", a.Error.Description)
}

// keep writes a receipt to the log, in one write, before the producer continues.
func (p *producers) keep(r judge.Receipt) error {
	line, err := json.Marshal(r)
	if err != nil {
		panic("torture: a receipt that JSON cannot carry: " + err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.log.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the producers' log: %w", err)
	}
	p.receipts = append(p.receipts, r)
	return nil
}

// end stops the producers and waits for them. After that, receipts is complete.
func (p *producers) end() error {
	p.stop()
	p.work.Wait()
	for _, nc := range p.conns {
		nc.Close()
	}
	return errors.Join(p.err, p.log.Close())
}

// nothingNew ignores an error of a connection. Without it nats.go would write to stderr that the server is down, which
// is normal in a run.
func nothingNew(*nats.Conn, *nats.Subscription, error) {}
