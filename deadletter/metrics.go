package deadletter

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"weir/ingest"
)

// countEvery is how old a count of the letters may get before a scrape counts them again. countWait bounds one count.
const (
	countEvery = 10 * time.Second
	countWait  = 5 * time.Second
)

var (
	lettersDesc = prometheus.NewDesc("weir_dead_letters_kept", "Dead letters that are kept.", []string{"api", "reason"}, nil)
	oldestDesc  = prometheus.NewDesc("weir_dead_letter_oldest_age_seconds", "Age of an api's oldest dead letter.", []string{"api"}, nil)
)

// kept counts the letters in the stream when the metrics are scraped.
type kept struct {
	js jetstream.JetStream

	mu      sync.Mutex // guards what follows; held during a count
	counted time.Time
	letters map[[2]string]uint64 // by api and reason
	oldest  map[string]time.Time // by api
}

// Describe implements prometheus.Collector.
func (k *kept) Describe(ch chan<- *prometheus.Desc) {
	ch <- lettersDesc
	ch <- oldestDesc
}

// Collect implements prometheus.Collector. If the stream does not answer, it sends no series.
func (k *kept) Collect(ch chan<- prometheus.Metric) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.counted) > countEvery {
		ctx, cancel := context.WithTimeout(context.Background(), countWait)
		defer cancel()
		if err := k.countLocked(ctx); err != nil {
			return
		}
		k.counted = time.Now()
	}
	for of, n := range k.letters {
		ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, float64(n), of[0], of[1])
	}
	for api, at := range k.oldest {
		ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, time.Since(at).Seconds(), api)
	}
}

func (k *kept) countLocked(ctx context.Context) error {
	stream, err := k.js.Stream(ctx, Stream)
	if err != nil {
		return err
	}
	letters, err := countSubjects(ctx, stream)
	if err != nil {
		return err
	}
	oldest, info := map[string]time.Time{}, stream.CachedInfo()
	for of := range letters {
		oldest[of[0]] = time.Time{}
	}
	for api := range oldest {
		name, err := ingest.ParseToken(api)
		if err != nil {
			continue // not written by weir
		}
		msg, err := stream.GetMsg(ctx, info.State.FirstSeq, jetstream.WithGetMsgSubject(Subjects.Below(name)))
		if err != nil {
			return err
		}
		oldest[api] = msg.Time
	}
	k.letters, k.oldest = letters, oldest
	return nil
}

// countSubjects counts the letters by the tokens of api and reason. The server counts by subject, so the cost grows
// with the number of keys that have letters.
func countSubjects(ctx context.Context, letters jetstream.Stream) (map[[2]string]uint64, error) {
	info, err := letters.Info(ctx, jetstream.WithSubjectFilter(Subjects.Below()))
	if err != nil {
		return nil, err
	}
	counts := map[[2]string]uint64{}
	for subject, n := range info.State.Subjects {
		if parts := strings.Split(subject, "."); len(parts) == 5 {
			counts[[2]string{parts[2], parts[3]}] += n
		}
	}
	return counts, nil
}

// Cause is the api and the reason of letters. API is "" for unknown apis.
type Cause struct {
	API    string
	Reason Reason
}

// Count counts the letters by cause. The cost grows with the number of keys that have letters.
func Count(ctx context.Context, letters jetstream.Stream) (map[Cause]uint64, error) {
	subjects, err := countSubjects(ctx, letters)
	if err != nil {
		return nil, fmt.Errorf("count the dead letters: %w", err)
	}
	counts := map[Cause]uint64{}
	for of, n := range subjects {
		api, err := ingest.ParseToken(of[0])
		reason, reasonErr := ingest.ParseToken(of[1])
		if err == nil && reasonErr == nil {
			counts[Cause{api, Reason(reason)}] += n
		}
	}
	return counts, nil
}
