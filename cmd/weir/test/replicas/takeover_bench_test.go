package replicas

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// BenchmarkTakeover is how soon a replica works a partition in which b.N jobs wait, of many keys or of one, beside the bare
// reading of the same stream. The server is a process of its own.
//
//	go test -run '^$' -bench Takeover -benchtime 1000000x ./cmd/weir
func BenchmarkTakeover(b *testing.B) {
	for _, keys := range []int{1000, 1} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { benchTakeover(b, keys) })
	}
}

func benchTakeover(b *testing.B, keys int) {
	api, err := fakeapi.Start(fakeapi.Options{KeepArrivals: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = api.Close() })
	dir := b.TempDir()
	file, listen := filepath.Join(dir, "weir.yaml"), servers.FreePort(b)
	weirtest.WriteFile(b, file, fmt.Sprintf("apis:\n  bench:\n    url: %s\n    bucket: {rate: 1/h, capacity: 1000000}\n", api.URL()))
	server, err := program.StartProcess(b,
		"WEIR_CONFIG="+file, "WEIR_DATA_DIR="+filepath.Join(dir, "data"), "WEIR_NATS_LISTEN="+listen, "WEIR_HTTP_LISTEN=",
		"WEIR_ROLES=ingest", "WEIR_PARTITIONS=1", "WEIR_DURABILITY=interval")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Kill)
	url := "nats://" + listen
	producer.BenchPublish(b, url, "weir.jobs.bench", keys)
	bare := bareRead(b, url, "WEIR_bench_0")

	b.ResetTimer()
	before, peak := mapped(), make(chan uint64)
	ready := make(chan struct{})
	go func() {
		most := uint64(0)
		for {
			select {
			case <-time.After(20 * time.Millisecond):
				most = max(most, mapped())
			case <-ready:
				peak <- max(most, mapped())
				return
			}
		}
	}()
	begun := time.Now()
	called := make(chan time.Duration, 1)
	go func() {
		_ = api.Await(b.Context(), func(sum fakeapi.Totals) bool { return sum.Arrivals > 0 })
		called <- time.Since(begun)
	}()
	w, err := worker.Start(b.Context(), program.ExternalSettings(b, url, file, "bench", environment.RoleDispatch), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	took := time.Since(begun)
	close(ready)
	b.ReportMetric((<-called).Seconds(), "s/first-call")
	b.ReportMetric(took.Seconds(), "s/all-read")
	b.ReportMetric(bare.Seconds(), "s/bare-read")
	b.ReportMetric(took.Seconds()/bare.Seconds(), "x-bare")
	b.ReportMetric(float64(<-peak-before)/(1<<20), "MiB-peak")
	debug.FreeOSMemory()
	b.ReportMetric(float64(mapped()-before)/(1<<20), "MiB-after")
	b.StopTimer()
	w.Stop()
	if err := await.Result(b, "the end of the worker", w.Wait); err != nil {
		b.Error(err)
	}
}

// mapped is the memory that the process holds.
func mapped() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}

// bareRead is the least that could be called a reading of a stream: an ordered consumer that takes all there is.
func bareRead(b *testing.B, url, stream string) time.Duration {
	b.Helper()
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	consumer, err := js.OrderedConsumer(b.Context(), stream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		b.Fatal(err)
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(1024))
	if err != nil {
		b.Fatal(err)
	}
	defer msgs.Stop()
	for n := 0; n < b.N; n++ {
		if _, err := msgs.Next(jetstream.NextContext(b.Context())); err != nil {
			if errors.Is(err, jetstream.ErrNoHeartbeat) {
				n--
				continue
			}
			b.Fatal(err)
		}
	}
	return time.Since(begun)
}
