package producer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// Fill publishes jobs and returns the answers in the same order. It publishes all jobs before it waits for answers. If
// it waited for each answer in turn, it would take as long as the disk, and a queue that a test expects to be full
// could be empty by then.
func Fill(t testing.TB, nc *nats.Conn, jobs []*nats.Msg) []Answer {
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
	answers, ctx := make([]Answer, len(jobs)), await.Context(t, "the answers of jobs that fill a queue")
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

// FillTaken is Fill, but fails unless every job has a receipt.
func FillTaken(t testing.TB, nc *nats.Conn, jobs []*nats.Msg) {
	t.Helper()
	for i, a := range Fill(t, nc, jobs) {
		if a.Error != nil || a.Seq == 0 {
			t.Fatalf("job %d of %d has no receipt: %+v", i, len(jobs), a)
		}
	}
}

// JobFor returns a job that is called at the path /key.
func JobFor(api, key, body string) *nats.Msg {
	return &nats.Msg{Subject: "weir.jobs." + api + "." + key, Data: []byte(body), Header: nats.Header{"Weir-Path": {"/" + key}}}
}

const ManyJobsYAML = `
apis:
  credit:
    url: %s
    jitter: 250ms
    bucket: {rate: 5000/s, capacity: 100000, in_flight: 8}
`

// JobsFile writes a file of jobs without ids for twenty keys, each with a path of its own.
func JobsFile(t *testing.T, jobs int) string {
	t.Helper()
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "{\"key\":\"k%d\",\"path\":\"/%d\",\"body\":{\"n\":%d}}\n", i%20, i, i)
	}
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
