package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// fill publishes jobs and returns the answers, in the same order. It waits for all answers at once: a producer that waits for
// one after the other takes as long as the disk does, and a queue that a test is to find full may be empty by then.
func fill(t testing.TB, nc *nats.Conn, jobs []*nats.Msg) []answer {
	t.Helper()
	inbox := nats.NewInbox()
	replies, err := nc.SubscribeSync(inbox + ".*")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = replies.Unsubscribe() }()
	for i, job := range jobs {
		job.Reply = fmt.Sprintf("%s.%d", inbox, i)
		if err := nc.PublishMsg(job); err != nil {
			t.Fatal(err)
		}
	}
	answers, ctx := make([]answer, len(jobs)), await.Context(t, "the answers of jobs that fill a queue")
	for n := range jobs {
		reply, err := replies.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("%d of %d jobs are answered: %v", n, len(jobs), err)
		}
		i, err := strconv.Atoi(strings.TrimPrefix(reply.Subject, inbox+"."))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(reply.Data, &answers[i]); err != nil {
			t.Fatalf("%s: %v", reply.Data, err)
		}
	}
	return answers
}

// fillTaken is fill where each job must be taken.
func fillTaken(t testing.TB, nc *nats.Conn, jobs []*nats.Msg) {
	t.Helper()
	for i, a := range fill(t, nc, jobs) {
		if a.Error != nil || a.Seq == 0 {
			t.Fatalf("job %d of %d has no receipt: %+v", i, len(jobs), a)
		}
	}
}

// jobFor is a job that is called under its key's path.
func jobFor(api, key, body string) *nats.Msg {
	return &nats.Msg{Subject: "weir.jobs." + api + "." + key, Data: []byte(body), Header: nats.Header{"Weir-Path": {"/" + key}}}
}

// fillPaused fills the queue of the api pay while nothing of it is called.
func (r *replicas) fillPaused(jobs []*nats.Msg) {
	r.t.Helper()
	for _, word := range []string{"pause", "resume"} {
		if got := command(r.t, []string{"WEIR_NATS_URL=" + r.nc.ConnectedUrl(), "WEIR_REPLICAS=1"}, word, "pay"); got.code != 0 {
			r.t.Fatalf("weir %s pay: %+v", word, got)
		}
		if word == "pause" {
			fillTaken(r.t, r.nc, jobs)
		}
	}
}
