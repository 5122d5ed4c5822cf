package httpintake

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/ingest"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// Options of a Door.
type Options struct {
	// Intake accepts the jobs; nil if this replica accepts none.
	Intake *ingest.Service
	// Bucket returns a key's bucket. It returns false if the api is not configured. It may be nil if Intake is nil.
	Bucket func(api, key string) (Bucket, bool)
	// Find returns what weir knows about a job. key is "" if the client did not name the key.
	Find func(ctx context.Context, api, key, job string) (*jobstory.Timeline, error)
	// Result reads a stored result. It returns nil if the result is gone.
	Result func(ctx context.Context, seq uint64) (*jobstory.KeptResult, error)

	MaxPosts   int   // posts under way at a time, on all routes; a further post is answered with 503
	MaxBodies  int64 // bytes of the bodies that are being read or stored
	MaxLookups int   // lookups of jobs that run at a time; at most MaxPosts/2 run or wait
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Bucket describes a key's bucket to a producer.
type Bucket struct {
	Capacity int64
	Interval time.Duration // between two calls of the key
	Drain    time.Duration // the time in which the configured rate drains a full bucket
}

// Timeouts.
const (
	bodyWait   = 10 * time.Second // for a body to arrive
	answerWait = 20 * time.Second // for the intake, which waits for streams
	sendWait   = 10 * time.Second // for a client to receive its answer
	lookupWait = 15 * time.Second
)

// Door serves jobs over HTTP. It is safe for concurrent use.
type Door struct {
	Options
	posts   *semaphore.Weighted
	bodies  *semaphore.Weighted
	lookups *semaphore.Weighted
	answers *prometheus.CounterVec

	bodyWait   time.Duration
	answerWait time.Duration
}

// New returns a door. It panics if a required option is missing.
func New(o Options) *Door {
	if o.Find == nil || o.Result == nil || o.Intake != nil && o.Bucket == nil || o.MaxPosts < 1 || o.MaxBodies < 1 || o.MaxLookups < 1 || o.Log == nil {
		panic("httpintake: New without Find, Result, Bucket, a bound or Log")
	}
	o.Log = o.Log.With("component", "door")
	d := &Door{
		Options: o, bodyWait: bodyWait, answerWait: answerWait,
		posts:  semaphore.NewWeighted(int64(o.MaxPosts)),
		bodies: semaphore.NewWeighted(o.MaxBodies), lookups: semaphore.NewWeighted(int64(o.MaxLookups)),
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

// Routes returns the door's routes.
func (d *Door) Routes() []console.Route {
	post := console.Route{
		Method: http.MethodPost, Path: "/v1/jobs/{api}/{key}", Role: console.Producer, Serve: d.post, MaxBody: math.MaxInt64, // the bound of each api applies
		Time: console.Endless,
	}
	unkeyed := post
	unkeyed.Path = "/v1/jobs/{api}" // for apis whose keys are not in the subject
	get := console.Route{
		Method: http.MethodGet, Path: "/v1/jobs/{api}/{id}", Role: console.Producer, Serve: d.get,
		AtOnce: max(1, d.MaxPosts/2),
	}
	return []console.Route{post, unkeyed, get}
}
