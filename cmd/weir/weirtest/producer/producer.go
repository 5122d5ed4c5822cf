// Package producer submits jobs to a weir under test, one at a time, in floods and in files, and reads the receipts.
package producer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Producer submits jobs to a weir over NATS.
type Producer struct {
	T  *testing.T
	NC *nats.Conn
	// Operators returns JetStream with the operators' credentials, which redrives need.
	Operators func() jetstream.JetStream
}

// Submit sends one job and returns the answer, parsed.
func (p Producer) Submit(subject string, body []byte, header map[string]string) Answer {
	p.T.Helper()
	msg := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	for name, value := range header {
		msg.Header[name] = []string{value}
	}
	nc := p.NC
	if strings.HasPrefix(subject, ingest.RedrivePrefix) {
		nc = p.Operators().Conn()
	}
	reply, err := nc.RequestMsg(msg, await.Patience)
	if err != nil {
		p.T.Fatal(err)
	}
	var a Answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		p.T.Fatalf("%s: %v", reply.Data, err)
	}
	return a
}

// Answer is the answer that a producer gets.
type Answer struct {
	Stream    string
	Seq       uint64
	Job, Key  string
	Duplicate bool
	OverSoft  bool `json:"over_soft"`
	Position  int
	ETAms     *int64 `json:"eta_ms"`
	Letter    uint64 `json:"dead_letter_seq"`
	RetryMS   int64  `json:"retry_after_ms"`
	Error     *struct {
		Code        int
		ErrCode     int `json:"err_code"`
		Description string
	}
}

func (a Answer) Eta() time.Duration {
	if a.ETAms == nil {
		return -1
	}
	return time.Duration(*a.ETAms) * time.Millisecond
}

// Send submits a job, and fails unless weir accepts it.
func (p Producer) Send(api, key string, h nats.Header, body string) {
	p.T.Helper()
	reply, err := p.NC.RequestMsg(&nats.Msg{Subject: "weir.jobs." + api + "." + key, Header: h, Data: []byte(body)}, await.Patience)
	if err != nil {
		p.T.Fatal(err)
	}
	var receipt struct {
		Seq   uint64
		Error json.RawMessage
	}
	if err := json.Unmarshal(reply.Data, &receipt); err != nil || receipt.Error != nil || receipt.Seq == 0 {
		p.T.Fatalf("not taken: %s", reply.Data)
	}
}

// Pay submits a job whose id is also its body.
func (p Producer) Pay(key, id string) {
	p.T.Helper()
	p.Send("pay", key, nats.Header{"Nats-Msg-Id": {id}, "Weir-Path": {"/" + key}}, id)
}

// Order submits one job that will become a letter with the reason unknown.
func (p Producer) Order(key, order string) {
	p.T.Helper()
	a := p.Submit("weir.jobs.pay."+key, fmt.Appendf(nil, `{"order":%q}`, order), map[string]string{
		"Nats-Msg-Id": order, "Weir-Path": "/pay/" + order, "Weir-Reply-To": "_INBOX.mine." + order,
	})
	if a.Error != nil {
		p.T.Fatal(a.Error)
	}
}

// SendUntil submits a job with a deadline. It returns a subscription that receives the job's end.
func (p Producer) SendUntil(key, id, deadline string) *nats.Subscription {
	p.T.Helper()
	inbox := "_INBOX.end." + id
	ends, err := p.NC.SubscribeSync(inbox)
	if err != nil {
		p.T.Fatal(err)
	}
	p.Send("pay", key, nats.Header{
		"Nats-Msg-Id": {id}, "Weir-Path": {"/" + key}, "Weir-Deadline": {deadline}, "Weir-Reply-To": {inbox},
	}, id)
	return ends
}

func (p Producer) SubmitMany(api, key string, n int) {
	p.T.Helper()
	jobs := make([]*nats.Msg, n)
	for i := range jobs {
		jobs[i] = JobFor(api, key, "")
	}
	FillTaken(p.T, p.NC, jobs)
}
