package producer

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// benchBody is the size of a body in benchmarks. They measure weir and a bare reference in the same run. Report the
// ratio, because the machine is noisy.
//
//	go test -run '^$' -bench . -benchtime 20000x ./cmd/weir/test/jobs
const benchBody = 256

func BenchPublish(b *testing.B, url, subject string, keys int) {
	b.Helper()
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithPublishAsyncTimeout(time.Minute))
	if err != nil {
		b.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), benchBody)
	for i := range b.N {
		_, err := js.PublishAsync(fmt.Sprintf("%s.key-%d", subject, i%keys), body, jetstream.WithStallWait(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}

// BenchBatches submits b.N jobs in batches of a hundred, with about 4,000 jobs under way.
func BenchBatches(b *testing.B, url, api string, keys int) {
	b.Helper()
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	const jobs, underWay = 100, 40
	inbox, answers := nats.NewInbox(), make(chan *nats.Msg, underWay)
	if _, err := nc.ChanSubscribe(inbox, answers); err != nil {
		b.Fatal(err)
	}
	body, open := bytes.Repeat([]byte("x"), benchBody), 0
	for i := 0; i < b.N || open > 0; {
		if i >= b.N || open == underWay {
			msg := await.Receive(b, "an answer", answers)
			if n := bytes.Count(msg.Data, []byte(`"position":`)); n == 0 || bytes.Contains(msg.Data, []byte(`"error"`)) {
				b.Fatalf("%s", msg.Data)
			}
			open--
			continue
		}
		batch := client.NewBatch(api)
		for ; i < b.N && batch.Jobs() < jobs; i++ {
			job := &nats.Msg{Subject: "weir.jobs." + api + ".key-" + strconv.Itoa(i%keys), Data: body, Header: nats.Header{"Nats-Msg-Id": {strconv.Itoa(i)}}}
			if err := batch.Add(job); err != nil {
				b.Fatal(err)
			}
		}
		msg := batch.Message()
		msg.Reply = inbox
		if err := nc.PublishMsg(msg); err != nil {
			b.Fatal(err)
		}
		open++
	}
}
