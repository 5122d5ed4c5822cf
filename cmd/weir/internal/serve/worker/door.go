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

// Bounds of jobs over HTTP.
const (
	mostPosts   = 1024    // under way at once, and at most half of the connections
	mostLookups = 4       // of jobs, at once
	doorScan    = 100_000 // messages of a stream searched for a job whose key is not named
	doorShare   = 4       // the part of the bytes waiting to be stored that bodies may take while they are read
)

// posts returns how many jobs may be posted at a time. Each holds a connection until its body has come and the job is
// stored; the others are for probes and operators.
func posts(connections int) int { return min(mostPosts, max(1, connections/2)) }

// openDoor accepts jobs over HTTP, and answers what became of them.
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

// bucketOf returns what producers are told about a key's bucket.
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

// configuredAPI returns an api of the configuration in force, nil if there is none of the name.
func (f *follower) configuredAPI(name string) *config.API {
	c := f.inForce.Load()
	for i := range c.APIs {
		if c.APIs[i].Name == name {
			return &c.APIs[i]
		}
	}
	return nil
}

// connection returns the worker's own connection, for questions that commands ask too.
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

// findQueued asks the owners of a queue for a job. On the embedded server the owner is this worker.
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
