package worker

import (
	"context"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/httpd/httpintake"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/desk"
	"weir/dispatcher/ledger"
)

// Bounds of the HTTP intake.
const (
	mostPosts   = 1024    // most posts under way at once; half of the connections if that is less
	mostLookups = 4       // most lookups of jobs under way at once
	doorScan    = 100_000 // most messages of a stream that a lookup of a job without a key searches
	doorShare   = 4       // the bodies that are being read may take one part in doorShare of the bytes that may wait to be stored
)

// posts returns how many jobs may be posted at once. Each post holds a connection until its job is stored, so the other
// connections remain for probes and operators.
func posts(connections int) int { return min(mostPosts, max(1, connections/2)) }

// openDoor adds the routes by which producers post jobs over HTTP and look up their ends.
func (w *Worker) openDoor() {
	if w.http == nil {
		return
	}
	d := httpintake.New(httpintake.Options{
		Intake: w.intake, Bucket: w.follower.bucketOf, Find: w.findJob, Result: w.resultAt,
		MaxPosts: posts(visitors(w.settings)), MaxBodies: w.holdings.IntakeBytes() / doorShare, MaxLookups: mostLookups,
		Log: w.log, Registerer: w.registry,
	})
	w.http.Add(d.Routes()...)
}

// bucketOf returns the size and the pace of a key's bucket, for producers. It returns false if the api is not
// configured.
func (f *follower) bucketOf(api, key string) (httpintake.Bucket, bool) {
	a := f.configuredAPI(api)
	if a == nil {
		return httpintake.Bucket{}, false
	}
	limits := a.Rules.For(key)
	t := a.Rules.Interval(limits.Rate)
	return httpintake.Bucket{
		Capacity: limits.Capacity, Interval: time.Duration(t.P) * time.Microsecond / time.Duration(t.Q),
		Drain: httpintake.DrainOf(limits.Capacity, limits.Rate.Count, limits.Rate.Per),
	}, true
}

// configuredAPI returns the api of that name in the configuration in force, nil if there is none.
func (f *follower) configuredAPI(name string) *config.API {
	c := f.inForce.Load()
	for i := range c.APIs {
		if c.APIs[i].Name == name {
			return &c.APIs[i]
		}
	}
	return nil
}

// connection returns the worker's own connection in the form that commands use.
func (w *link) connection() *connect.Connection {
	return &connect.Connection{Conn: w.nc, JetStream: w.js, At: w.nc.ConnectedUrlRedacted(), Denied: &w.denied}
}

func (w *Worker) findJob(ctx context.Context, api, key, job string) (*jobstory.Timeline, error) {
	o := jobstory.Options{Job: job, API: api, Key: key, Scan: doorScan, InQueue: w.findQueued}
	if w.follower.configuredAPI(api) != nil {
		o.APIs = []string{api}
	}
	return jobstory.Find(ctx, w.connection(), o)
}

// findQueued asks the owners of an api's queues for a job. On the embedded server this worker is the owner.
func (w *Worker) findQueued(ctx context.Context, api string, q admin.JobInQueue) ([]desk.QueuedJob, error) {
	if w.server != nil && w.dispatch != nil {
		return w.dispatch.Desk.FindQueued(ctx, desk.Cancellation{API: api, Key: q.Key, Job: q.Job})
	}
	return admin.FindSoon(w.connection(), api, q)
}

func (w *link) resultAt(ctx context.Context, seq uint64) (*jobstory.KeptResult, error) {
	r, err := ledger.ResultAt(ctx, w.js, seq)
	if err != nil || r == nil {
		return nil, err
	}
	kept := jobstory.ResultOf(r)
	return &kept, nil
}
