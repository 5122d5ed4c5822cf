package door

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/timeline"
	"weir/ingest"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// Options of a Door.
type Options struct {
	// Intake takes the jobs; nil where this replica takes none.
	Intake *ingest.Service
	// Bucket says how many jobs of a key may wait, and how far apart its calls start; false for an api that is not configured. nil where
	// Intake is.
	Bucket func(api, key string) (Bucket, bool)
	// Find gathers what is known of a job. key is empty where it is not known.
	Find func(ctx context.Context, api, key, job string) (*timeline.Timeline, error)
	// Result reads a stored result; nil where it is gone.
	Result func(ctx context.Context, seq uint64) (*timeline.KeptResult, error)

	MaxPosts   int   // requests under way at once
	MaxBodies  int64 // bytes of bodies that are read or wait to be stored
	MaxLookups int   // jobs that are looked up at once
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Bucket is what a producer may know of a key's.
type Bucket struct {
	Capacity int64
	Interval time.Duration // between calls, widened as calls are
	Drain    time.Duration // what a full bucket takes at the configured rate
}

// How long things may take.
const (
	bodyWait   = 10 * time.Second // until a body has arrived
	answerWait = 20 * time.Second // for the intake, which waits for streams
	sendWait   = 10 * time.Second // until a client has taken its answer
	lookupWait = 15 * time.Second
)

// Door is the ways in to jobs over HTTP. It is safe for concurrent use.
type Door struct {
	Options
	bodies  *semaphore.Weighted
	lookups *semaphore.Weighted
	answers *prometheus.CounterVec

	bodyWait   time.Duration
	answerWait time.Duration
}

// New makes a door.
func New(o Options) *Door {
	if o.Find == nil || o.Result == nil || o.Intake != nil && o.Bucket == nil || o.MaxPosts < 1 || o.MaxBodies < 1 || o.MaxLookups < 1 || o.Log == nil {
		panic("door: New without Find, Result, Bucket, a bound or Log")
	}
	o.Log = o.Log.With("component", "door")
	d := &Door{
		Options: o, bodyWait: bodyWait, answerWait: answerWait, bodies: semaphore.NewWeighted(o.MaxBodies), lookups: semaphore.NewWeighted(int64(o.MaxLookups)),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_posts_total", Help: "Jobs that were posted over HTTP, by the status that their producers were answered.",
		}, []string{"code"}),
	}
	for _, code := range []int{
		http.StatusAccepted, http.StatusBadRequest, http.StatusNotFound, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	} {
		d.answers.WithLabelValues(strconv.Itoa(code))
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(d.answers)
	}
	return d
}

// Routes are the ways in.
func (d *Door) Routes() []console.Route {
	post := console.Route{
		Method: http.MethodPost, Path: "/v1/jobs/{api}/{key}", Role: console.Producer, Serve: d.post, MaxBody: math.MaxInt64, // each api has its own
		Time: console.Endless, AtOnce: d.MaxPosts,
	}
	unkeyed := post
	unkeyed.Path = "/v1/jobs/{api}" // where the api finds its keys elsewhere
	get := console.Route{Method: http.MethodGet, Path: "/v1/jobs/{api}/{id}", Role: console.Producer, Serve: d.get}
	return []console.Route{post, unkeyed, get}
}
