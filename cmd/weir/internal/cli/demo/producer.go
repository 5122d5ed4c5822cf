package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	answersWithin = 20 * time.Second       // the longest wait for all answers to the burst
	trickleEvery  = 900 * time.Millisecond // the time between two jobs of the calm customer
	askAgain      = 100 * time.Millisecond // the wait after a missing answer
	answerWithin  = 300 * time.Millisecond // the longest wait for one answer
)

// receipt is weir's answer to a job that was submitted.
type receipt struct {
	Seq      uint64 `json:"seq"`
	Job      string `json:"job"`
	Position int    `json:"position"`
	ETAms    int64  `json:"eta_ms"`
	Letter   uint64 `json:"dead_letter_seq"`
	Error    *struct {
		Code        int    `json:"code"`
		Description string `json:"description"`
	} `json:"error"`
}

// burst is the outcome of many jobs sent at once.
type burst struct {
	key       string
	sent      []time.Duration // when each job was sent, counted from the first one
	accepted  []receipt       // the receipts, in the order in which weir stored the jobs
	throttled int
}

// jobOf returns a job as a program that uses no library of weir writes it.
func jobOf(key string, n int) *nats.Msg {
	msg := nats.NewMsg("weir.jobs." + apiName + "." + key)
	msg.Header.Set("Weir-Path", "/customers/"+key)
	msg.Data = fmt.Appendf(nil, `{"customer":%q,"n":%d}`, key, n)
	return msg
}

// burst sends jobs of one key all at once, like a program that does not know weir's rate, and reads the answers.
func (d *demo) burst(ctx context.Context, key string, jobs int) (*burst, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answersWithin, fmt.Errorf("not every job was answered within %v", answersWithin))
	defer cancel()
	inbox := nats.NewInbox()
	answers, err := d.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only if the connection has failed
	b := &burst{key: key}
	start := time.Now()
	for n := range jobs {
		msg := jobOf(key, n+1)
		msg.Reply = inbox
		if err := d.nc.PublishMsg(msg); err != nil {
			return nil, fmt.Errorf("publish job %d: %w", n+1, err)
		}
		b.sent = append(b.sent, time.Since(start))
	}
	for range jobs {
		msg, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("wait for answers: %w", errors.Join(context.Cause(ctx), err))
		}
		r, err := readReceipt(msg)
		switch {
		case err != nil:
			return nil, err
		case r.Error == nil:
			b.accepted = append(b.accepted, r)
		case r.Error.Code == 429 && r.Letter > 0:
			b.throttled++
		default:
			return nil, fmt.Errorf("weir refused a job for another reason than its rate: %s", msg.Data)
		}
	}
	if len(b.accepted) == 0 {
		return nil, errors.New("weir accepted no job of the burst")
	}
	slices.SortFunc(b.accepted, func(x, y receipt) int { return int(x.Seq) - int(y.Seq) })
	return b, nil
}

func readReceipt(msg *nats.Msg) (receipt, error) {
	var r receipt
	if err := json.Unmarshal(msg.Data, &r); err != nil {
		return r, fmt.Errorf("an answer that is no receipt: %q: %w", msg.Data, err)
	}
	return r, nil
}

// submission is one job of the trickle.
type submission struct {
	receipt
	at int64 // when the job was first sent, on the clock of the api's ledger
}

// trickle is a program that submits a job every 0.9 s until it is stopped.
type trickle struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	jobs   []submission
	err    error
}

// trickle starts to submit jobs of one key. Each job has an id, so that it can be sent again if its answer is lost.
func (d *demo) trickle(ctx context.Context, key string) *trickle {
	ending, cancel := context.WithCancel(ctx)
	t := &trickle{cancel: cancel}
	t.done.Go(func() {
		tick := time.NewTicker(trickleEvery)
		defer tick.Stop()
		for n := 1; ; n++ {
			s, err := d.submit(ctx, key, n)
			if err != nil {
				t.err = err
				return
			}
			t.jobs = append(t.jobs, s)
			select {
			case <-tick.C:
			case <-ending.Done():
				return
			}
		}
	})
	d.onStop("calm customer", func() error { cancel(); t.done.Wait(); return nil })
	return t
}

// submit sends one job again and again until it is answered.
func (d *demo) submit(ctx context.Context, key string, n int) (submission, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answersWithin, fmt.Errorf("a job of %s was not answered within %v", key, answersWithin))
	defer cancel()
	msg := jobOf(key, n)
	msg.Header.Set(nats.MsgIdHdr, key+"-"+strconv.Itoa(n))
	s := submission{at: d.now()}
	for {
		answer, err := d.ask(ctx, msg)
		if err == nil {
			if s.receipt, err = readReceipt(answer); err == nil && s.Error != nil {
				err = fmt.Errorf("weir refused a job of %s: %s", key, s.Error.Description)
			}
			return s, err
		}
		select { // weir is being killed and restarted: send the same job with the same id again
		case <-time.After(askAgain):
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

func (d *demo) ask(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return d.nc.RequestMsgWithContext(ctx, msg)
}

// stop waits for the job that is being submitted, ends the trickle, and returns all submitted jobs.
func (t *trickle) stop() ([]submission, error) {
	t.cancel()
	t.done.Wait()
	return t.jobs, t.err
}
