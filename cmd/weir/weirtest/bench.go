package weirtest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The benchmarks measure weir and a bare reference in the same run. Report the ratio, because the machine is noisy.
//
//	go test -run '^$' -bench . -benchtime 20000x ./cmd/weir

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
