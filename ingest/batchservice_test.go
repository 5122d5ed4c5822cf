package ingest_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"weir/ingest"
	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// batchOf renders jobs as a batch.
func batchOf(t *testing.T, jobs ...ingest.Submission) *nats.Msg {
	t.Helper()
	b := client.NewBatch(jobs[0].API)
	for _, j := range jobs {
		msg, err := j.Message()
		if err != nil {
			t.Fatal(err)
		}
		if j.ID == "" {
			msg.Header.Del("Nats-Msg-Id")
		}
		if err := b.Add(msg); err != nil {
			t.Fatal(err)
		}
	}
	return b.Message()
}

// told reads the answer to a batch: for each job its position, or the code of its refusal.
func told(t *testing.T, nc *nats.Conn, msg *nats.Msg, jobs int) (told []string, all []client.Answer) {
	t.Helper()
	answer, err := nc.RequestMsg(msg, await.Patience)
	if err != nil {
		t.Fatal(err)
	}
	if all, err = client.ParseBatch(answer.Data, jobs); err != nil {
		t.Fatalf("%v: %s", err, answer.Data)
	}
	for _, a := range all {
		var refusal *ingest.Refusal
		switch {
		case errors.As(a.Err, &refusal):
			told = append(told, fmt.Sprint(refusal.Code.Status()))
		case a.Err != nil:
			told = append(told, "unknown")
		default:
			told = append(told, fmt.Sprint(a.Receipt.Job, "@", a.Receipt.Key, ":", a.Receipt.Position))
		}
	}
	return told, all
}

// TestBatch checks that each job of a batch is taken or refused as if it had come alone, in the order of the batch, and
// that tools count jobs.
func TestBatch(t *testing.T) {
	for _, later := range []bool{false, true} {
		nc, kept, stop := intake()
		kept.later = later
		const api = "credit-check"
		got, all := told(t, nc, batchOf(t,
			ingest.Submission{API: api, Key: "a b", ID: "1", Body: []byte("\r\n0 0 k\r\n")},
			ingest.Submission{API: api, Key: "k", ID: "2"},
			ingest.Submission{API: api, Key: "a b", ID: "3"},
			ingest.Submission{API: api, Key: "k", ID: "4", Method: "TRACE"},
			ingest.Submission{API: api, Key: "a b", ID: "5"},
			ingest.Submission{API: api, Key: "k", Path: "/without-an-id"},
			ingest.Submission{API: api, Key: "k", ID: "7", Body: make([]byte, 65)},
			ingest.Submission{API: api, ID: "8"},
			ingest.Submission{API: api, Key: "_", ID: "9"},
			ingest.Submission{API: api, Key: "tenant.42", ID: "10", JobHeader: nats.Header{"Weir-Batch": {"1"}}},
			ingest.Submission{API: api, Key: "k", ID: "11", JobHeader: nats.Header{"Weir-Deadline": {"1h"}}},
		), 11)
		if want := []string{"1@a b:1", "2@k:1", "3@a b:2", "400", "429", "400", "413", "400", "9@_:1", "400", "11@k:2"}; !reflect.DeepEqual(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		for i, a := range all {
			var refusal *ingest.Refusal
			if errors.As(a.Err, &refusal) && (refusal.LetterSeq != 55 || refusal.Job == "") {
				t.Errorf("job %d: %+v", i, refusal)
			}
		}
		if body := kept.jobs["a b"][0].Body; string(body) != "\r\n0 0 k\r\n" {
			t.Errorf("the body came as %q", body)
		}
		stats := asked[micro.Stats](t, nc, "$SRV.STATS.weir").Endpoints[0]
		if stats.NumRequests != 11 || stats.NumErrors != 6 {
			t.Errorf("%+v", stats)
		}
		stop()
	}
}

// TestBatchOfOneKey checks the other subjects of batches: one key for all jobs, and keys that are in no subject.
func TestBatchOfOneKey(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	msg := batchOf(t, ingest.Submission{API: "credit-check", ID: "1"}, ingest.Submission{API: "credit-check", ID: "2"})
	if msg.Subject != "weir.jobs.credit-check" {
		t.Errorf("subject %s", msg.Subject)
	}
	if got, _ := told(t, nc, msg, 2); !reflect.DeepEqual(got, []string{"400", "400"}) {
		t.Errorf("without keys: %v", got)
	}
	msg.Subject += ".tenant.%34%32"
	if got, _ := told(t, nc, msg, 2); !reflect.DeepEqual(got, []string{"1@tenant.42:1", "2@tenant.42:2"}) {
		t.Errorf("of one key: %v", got)
	}
	msg = batchOf(t, ingest.Submission{API: "nobody", Key: "k", ID: "1"}, ingest.Submission{API: "nobody", Key: "l", ID: "2"})
	if got, _ := told(t, nc, msg, 2); !reflect.DeepEqual(got, []string{"404", "404"}) || kept.refused.Key != "l" {
		t.Errorf("of no api: %v, letter %+v", got, kept.refused)
	}
}

// TestBatchIsUnsure checks that weir says null for a job if it does not know whether it is stored.
func TestBatchIsUnsure(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	kept.says = &ingest.Refusal{Code: ingest.Unsure, Description: "the stream did not confirm the job"}
	got, all := told(t, nc, batchOf(t, ingest.Submission{API: "credit-check", Key: "k", ID: "1"}, ingest.Submission{API: "credit-check", Key: "k", ID: "2"}), 2)
	if !reflect.DeepEqual(got, []string{"unknown", "unknown"}) || !errors.Is(all[0].Err, client.ErrNoAnswer) || all[0].JSON != nil {
		t.Errorf("%v %+v", got, all)
	}
}

// TestBatchIsRefusedWhole checks that of a batch that cannot be divided nothing is taken. The answer says where it is
// wrong, and the message becomes one letter.
func TestBatchIsRefusedWhole(t *testing.T) {
	nc, kept, stop := intake()
	defer stop()
	const good = "16 2 k\r\nNats-Msg-Id: 1\r\n{}"
	const one = "_"
	for _, c := range []struct {
		name, tokens, body, want string
		header                   nats.Header
		leftOut                  bool
	}{
		{"cut", one, good + good[:20], "batch: job 2 of 2, at byte 26: it has 16 bytes of headers", nats.Header{"Weir-Batch": {"2"}}, false},
		{"large", one, good + strings.Repeat("x", 100), "batch: 100 bytes follow after the last of 1 jobs", nats.Header{"Weir-Batch": {"1"}}, true},
		{"no ids", one, strings.Repeat("0 0 k\r\n", 1000), "job 1 of 1000, at byte 0: it has no headers", nats.Header{"Weir-Batch": {"1000"}}, true},
		{"no jobs", one, "", "the number of jobs, once, from 1 to 1000", nats.Header{"Weir-Batch": {"0"}}, false},
		{"too many", one, good, "from 1 to 1000", nats.Header{"weir-batch": {"1001"}}, false},
		{"twice", one, good, "from 1 to 1000", nats.Header{"Weir-Batch": {"1", "1"}}, false},
		{"no number", one, good, "from 1 to 1000", nats.Header{"Weir-Batch": {"one"}}, false},
		{"an id", one, good, "header Nats-Msg-Id: it belongs to the jobs", nats.Header{"Weir-Batch": {"1"}, "Nats-Msg-Id": {"1"}}, false},
		{"a path", one, good, "header Weir-Path: it belongs to the jobs", nats.Header{"Weir-Batch": {"1"}, "Weir-Path": {"/"}}, false},
		{"two keys", "k", good, "job 1 of 1 names a key: publish the batch to weir.jobs.<api>._", nats.Header{"Weir-Batch": {"1"}}, false},
	} {
		kept.refused = ingest.Refused{}
		c.header["X-Own"] = []string{"1"}
		answer, err := nc.RequestMsg(&nats.Msg{Subject: "weir.jobs.credit-check." + c.tokens, Header: c.header, Data: []byte(c.body)}, await.Patience)
		if err != nil {
			t.Fatal(c.name, err)
		}
		_, err = client.ParseBatch(answer.Data, 1)
		var refusal *ingest.Refusal
		if !errors.As(err, &refusal) || refusal.Code != ingest.Invalid || !strings.Contains(refusal.Description, c.want) || refusal.LetterSeq != 55 ||
			answer.Header.Get("Nats-Service-Error-Code") != "400" {
			t.Errorf("%s: %v %v, want %q", c.name, err, answer.Header, c.want)
		}
		if l := kept.refused; l.BodyLeftOut != c.leftOut || !c.leftOut && string(l.Body) != c.body || l.Header.Get("X-Own") != "1" {
			t.Errorf("%s: letter %+v", c.name, l)
		}
	}
	if len(kept.jobs) != 0 {
		t.Errorf("jobs were taken: %v", kept.jobs)
	}
	if got, _ := told(t, nc, &nats.Msg{Subject: "weir.jobs.credit-check._", Header: nats.Header{"Weir-Batch": {"2"}}, Data: []byte("7 0 k\r\nno line" + good)}, 2); !reflect.DeepEqual(got, []string{"400", "1@k:1"}) {
		t.Errorf("a header that is none: %v", got)
	}
}

// TestBatchWithLargeHeaders checks that a job whose headers are too large is refused under its id, and alone.
func TestBatchWithLargeHeaders(t *testing.T) {
	nc, _, stop := intake()
	defer stop()
	got, all := told(t, nc, batchOf(t,
		ingest.Submission{API: "credit-check", Key: "k", ID: "0", JobHeader: nats.Header{"X-Own": {strings.Repeat("x", 32<<10)}}},
		ingest.Submission{API: "credit-check", Key: "k", ID: "1"},
	), 2)
	if !reflect.DeepEqual(got, []string{"400", "1@k:1"}) || !strings.Contains(fmt.Sprint(all[0].Err), "at most 32768 are allowed") {
		t.Errorf("%v: %v", got, all[0].Err)
	}
}

// TestBatchNeedsTheRightToItsKey checks that the subject of a batch is that of its jobs if they have one key, so that a
// right to publish jobs of that key suffices.
func TestBatchNeedsTheRightToItsKey(t *testing.T) {
	nc, _, stop := intake()
	defer stop()
	msg := batchOf(t,
		ingest.Submission{API: "credit-check", Key: "a b", ID: "1", Body: []byte("one")},
		ingest.Submission{API: "credit-check", Key: "a b", ID: "2", Body: []byte("two")},
	)
	if msg.Subject != "weir.jobs.credit-check.a%20b" {
		t.Errorf("subject %s", msg.Subject)
	}
	if got, _ := told(t, nc, msg, 2); !reflect.DeepEqual(got, []string{"1@a b:1", "2@a b:2"}) {
		t.Errorf("%v", got)
	}
	msg = batchOf(t, ingest.Submission{API: "credit-check", Key: "k", ID: "3"}, ingest.Submission{API: "credit-check", ID: "4"})
	if msg.Subject != "weir.jobs.credit-check._" {
		t.Errorf("subject %s", msg.Subject)
	}
	if got, _ := told(t, nc, msg, 2); !reflect.DeepEqual(got, []string{"3@k:1", "400"}) {
		t.Errorf("%v", got)
	}
}
