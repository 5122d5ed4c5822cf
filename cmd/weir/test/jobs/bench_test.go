package jobs

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// BenchmarkAccept is how fast jobs are taken.
func BenchmarkAccept(b *testing.B) {
	for _, d := range []environment.Durability{environment.DurabilityAlways, environment.DurabilityInterval} {
		b.Run(string(d), func(b *testing.B) {
			r := newBenchRig(b, d, "    idempotency: {header: Idempotency-Key}\n")
			r.run(environment.RoleIngest)
			b.ResetTimer()
			producer.BenchPublish(b, r.worker.NATSURL(), "weir.jobs.bench", 1000)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.StopTimer()
			r.stop()
		})
		b.Run("batches-"+string(d), func(b *testing.B) {
			r := newBenchRig(b, d, "    idempotency: {header: Idempotency-Key}\n")
			r.run(environment.RoleIngest)
			b.ResetTimer()
			producer.BenchBatches(b, r.worker.NATSURL(), "bench", 1000)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.StopTimer()
			r.stop()
		})
		b.Run("bare-"+string(d), func(b *testing.B) {
			url := bareServer(b, d, jetstream.StreamConfig{Name: "BARE", Subjects: []string{"bare.>"}})
			b.ResetTimer()
			producer.BenchPublish(b, url, "bare", 1000)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// BenchmarkDispatch is how fast jobs go from a producer to the api and are done with.
func BenchmarkDispatch(b *testing.B) {
	for _, d := range []environment.Durability{environment.DurabilityAlways, environment.DurabilityInterval} {
		for _, kind := range []struct{ name, extra string }{
			{"idempotent", "    idempotency: {header: Idempotency-Key}\n"}, {"intents", ""},
		} {
			b.Run(string(d)+"/"+kind.name, func(b *testing.B) {
				r := newBenchRig(b, d, kind.extra)
				r.run(environment.RoleDispatch, environment.RoleIngest)
				b.ResetTimer()
				producer.BenchPublish(b, r.worker.NATSURL(), "weir.jobs.bench", 1000)
				err := r.api.Await(b.Context(), func(sum fakeapi.Totals) bool { return sum.Ended >= int64(b.N) })
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
				b.StopTimer()
				r.stop()
			})
		}
		b.Run(string(d)+"/bare", func(b *testing.B) { bareLoop(b, d) })
	}
}

// bareLoop is the least that could be called a worker: a work-queue consumer, an HTTP call, an ack.
func bareLoop(b *testing.B, d environment.Durability) {
	api, err := fakeapi.Start(fakeapi.Options{KeepArrivals: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = api.Close() })
	url := bareServer(b, d, jetstream.StreamConfig{Name: "BARE", Subjects: []string{"bare.>"}, Retention: jetstream.WorkQueuePolicy})
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	consumer, err := js.CreateConsumer(b.Context(), "BARE", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1024})
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	slots := make(chan struct{}, 64)
	var done atomic.Int64
	all := make(chan struct{})
	var once sync.Once
	b.ResetTimer()
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			res, err := client.Post(api.URL(), "", bytes.NewReader(m.Data()))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			_ = m.Ack()
			if done.Add(1) == int64(b.N) {
				once.Do(func() { close(all) })
			}
		}()
	})
	if err != nil {
		b.Fatal(err)
	}
	defer consuming.Stop()
	producer.BenchPublish(b, url, "bare", 1000)
	<-all
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func bareServer(b *testing.B, d environment.Durability, cfg jetstream.StreamConfig) string {
	b.Helper()
	server, err := embedded.Start(b.Context(), embedded.Options{
		MaxStore: servers.Roomy,
		Listen:   "127.0.0.1:0", Dir: b.TempDir(), SyncAlways: d == environment.DurabilityAlways, MaxPayload: 8 << 20,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Shutdown)
	nc, err := nats.Connect(server.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
	return server.ClientURL()
}

// BenchmarkDrain is dispatch alone: the jobs wait already.
func BenchmarkDrain(b *testing.B) {
	for _, d := range []environment.Durability{environment.DurabilityAlways, environment.DurabilityInterval} {
		for _, kind := range []struct{ name, extra string }{
			{"idempotent", "    idempotency: {header: Idempotency-Key}\n"}, {"intents", ""},
		} {
			b.Run(string(d)+"/"+kind.name, func(b *testing.B) {
				r := newBenchRig(b, d, kind.extra)
				r.run(environment.RoleIngest)
				producer.BenchPublish(b, r.worker.NATSURL(), "weir.jobs.bench", 1000)
				r.stop()
				b.ResetTimer()
				r.run(environment.RoleDispatch)
				err := r.api.Await(b.Context(), func(sum fakeapi.Totals) bool { return sum.Ended >= int64(b.N) })
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
				b.StopTimer()
				r.stop()
			})
		}
	}
}

// benchRig is a worker that can be started with one role after another on the same store.
type benchRig struct {
	b        *testing.B
	api      *fakeapi.API
	settings environment.Settings
	worker   *worker.Worker
}

func newBenchRig(b *testing.B, d environment.Durability, extra string) *benchRig {
	b.Helper()
	api, err := fakeapi.Start(fakeapi.Options{KeepArrivals: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = api.Close() })
	dir := b.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	weirtest.WriteFile(b, file, fmt.Sprintf("apis:\n  bench:\n    url: %s\n    price: 0.01\n%s    bucket: {rate: 1000000/s, burst: 1000, capacity: 1000000, in_flight: 64}\n",
		api.URL(), extra))
	return &benchRig{b: b, api: api, settings: environment.Settings{
		Config: file, NATSListen: "127.0.0.1:0", DataDir: filepath.Join(dir, "data"), Durability: d,
		Replicas: 1, Partitions: 8, Instance: "bench", ShutdownTimeout: 10 * time.Second,
	}}
}

func (r *benchRig) run(roles ...environment.Role) {
	r.b.Helper()
	s := r.settings
	s.Roles = roles
	var err error
	r.worker, err = worker.Start(r.b.Context(), &s, slog.New(slog.DiscardHandler))
	if err != nil {
		r.b.Fatal(err)
	}
}

func (r *benchRig) stop() {
	r.worker.Stop()
	if err := await.Result(r.b, "the end of the worker", r.worker.Wait); err != nil {
		r.b.Error(err)
	}
}
