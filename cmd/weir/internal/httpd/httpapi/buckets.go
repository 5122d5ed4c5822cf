package httpapi

import (
	"context"

	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
)

// keyList answers GET /apis/{api}/keys.
type keyList struct {
	Keys []schedule.KeyState `json:"keys"`
	// Next is the after of the next page; absent on the last.
	Next string `json:"next,omitempty"`
	// Resting are paused keys without jobs, out of RestingAll.
	Resting    []schedule.KeyState `json:"resting"`
	RestingAll int                 `json:"resting_all"`
	Pause      *schedule.Pause     `json:"pause,omitempty"` // of the whole api
	KeysAll    int                 `json:"keys_all"`        // with unfinished jobs
	Jobs       int                 `json:"jobs"`            // unfinished, of the api
	Partitions int                 `json:"partitions"`
	Missing    int                 `json:"missing"` // partitions whose owner did not answer
}

var (
	keysLimit = parameter{name: "limit", summary: "how many to list", kind: number, most: desk.MaxInspected, usual: 100}
	jobsLimit = parameter{name: "limit", summary: "how many jobs to list", kind: number, most: desk.MaxInspected, usual: 20}
)

// keyNamed is the key as a parameter of the query. In a path it could be lost: browsers and proxies remove . and ..
// from a path, however they are written.
var keyNamed = parameter{name: "key", summary: "the key", kind: text}

// buckets answers with the buckets of apis. It asks their owners.
type buckets struct{ *Options }

func (b *buckets) list(_ context.Context, r *request) (any, error) {
	api, err := b.api(r)
	if err != nil {
		return nil, err
	}
	q := admin.KeysQuery{Limit: r.number(keysLimit), Match: r.word("match")}
	if q.After, err = admin.ParsePlace(r.word("after")); err != nil {
		return nil, badRequest("after: %v", err)
	}
	g, err := admin.KeysPage(b.Connection, api.Name, q)
	if err != nil {
		return nil, err
	}
	list := keyList{
		Keys: g.Buckets, Resting: g.Resting, RestingAll: g.RestingAll, Pause: g.Pause, KeysAll: g.Keys, Jobs: g.Jobs,
		Partitions: g.Partitions, Missing: g.Missing,
	}
	if list.Keys == nil {
		list.Keys = []schedule.KeyState{}
	}
	if list.Resting == nil {
		list.Resting = []schedule.KeyState{}
	}
	if len(g.Buckets) == q.Limit {
		list.Next = admin.PlaceOf(&g.Buckets[q.Limit-1]).String()
	}
	return list, nil
}

func (b *buckets) show(ctx context.Context, r *request) (any, error) {
	api, err := b.api(r)
	if err != nil {
		return nil, err
	}
	key, err := r.key()
	if err != nil {
		return nil, err
	}
	return status.Bucket(ctx, b.Connection, api.Name, key, r.number(jobsLimit))
}
