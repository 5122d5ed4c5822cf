package httpapi

import (
	"context"
	"sync"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/ops/doctor"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"

	"golang.org/x/sync/singleflight"
)

// apiList answers GET /apis.
type apiList struct {
	APIs []*status.API `json:"apis"`
}

// limitList answers GET /limits.
type limitList struct {
	Limits []limitOf `json:"limits"`
}

// limitOf is a limit that all keys of an api share, with its use.
type limitOf struct {
	API string `json:"api"`
	limitstate.LimitShown
}

// replicaList answers GET /replicas.
type replicaList struct {
	Replicas []status.Replica `json:"replicas"`
	Intakes  int              `json:"intakes"`
}

// findingList answers GET /doctor.
type findingList struct {
	Findings []doctor.Finding `json:"findings"`
}

// overview computes the state of weir. Clients that ask at the same time share one computation.
type overview struct {
	*Options

	once singleflight.Group

	mu   sync.Mutex // guards the fields below, the last answer, which calls soon after reuse
	at   time.Time
	last *snapshot
}

// snapshot is the state of weir at one moment.
type snapshot struct {
	*status.Status
	today *spend.Account // today's spending, and the budgets as weir counts them; nil if unknown
}

// tellStatus answers GET /status.
func (o *overview) tellStatus(ctx context.Context, _ *request) (any, error) {
	return o.now(ctx)
}

// apis answers GET /apis.
func (o *overview) apis(ctx context.Context, _ *request) (any, error) {
	s, err := o.now(ctx)
	if err != nil {
		return nil, err
	}
	return apiList{s.APIs}, nil
}

// limits answers GET /limits.
func (o *overview) limits(ctx context.Context, _ *request) (any, error) {
	s, err := o.now(ctx)
	if err != nil {
		return nil, err
	}
	list := limitList{[]limitOf{}}
	for _, api := range s.APIs {
		for i := range api.Limits {
			list.Limits = append(list.Limits, limitOf{api.API, api.Limits[i]})
		}
	}
	return list, nil
}

// replicas answers GET /replicas.
func (o *overview) replicas(ctx context.Context, _ *request) (any, error) {
	s, err := o.now(ctx)
	if err != nil {
		return nil, err
	}
	return replicaList{s.Replicas, s.Intakes}, nil
}

func (o *overview) examine(ctx context.Context, _ *request) (any, error) {
	asked := doctor.Options{Settings: o.Settings, Connection: o.Connection, Config: o.Config()}
	var err error
	if asked.Status, err = o.now(ctx); err != nil {
		return nil, err
	}
	return findingList{doctor.Examine(ctx, asked)}, nil
}

// version answers GET /version.
func version(context.Context, *request) (any, error) { return cli.ThisBuild(), nil }

// How long weir reuses a status, how long computing one may take, and how many paused and held keys it names per api.
const (
	statusHolds = snapshotEvery / 2
	statusWait  = 15 * time.Second
	statusKeys  = 100
)

// now returns the state of weir, at most statusHolds old.
func (o *overview) now(ctx context.Context) (*status.Status, error) {
	s, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return s.Status, nil
}

// snapshot returns the state of weir together with today's spending. Calls at the same time share one computation.
func (o *overview) snapshot(ctx context.Context) (*snapshot, error) {
	o.mu.Lock()
	last, at := o.last, o.at
	o.mu.Unlock()
	if last != nil && time.Since(at) < statusHolds {
		return last, nil
	}
	waiting := o.once.DoChan("status", func() (any, error) {
		// Other clients may wait for the same computation.
		working, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusWait)
		defer cancel()
		roster := o.roster(working)
		today := o.spentToday(working) // before the limits, so that they count all of it
		s, err := status.Gather(working, o.Connection, statusKeys, roster)
		if err != nil {
			return nil, err
		}
		s.AddSpent(today)
		for _, api := range s.APIs {
			if today != nil {
				today.Heard(api.API, api.Limits)
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last, o.at = &snapshot{s, today}, time.Now()
		return o.last, nil
	})
	select {
	case done := <-waiting:
		if done.Err != nil {
			return nil, done.Err
		}
		s, _ := done.Val.(*snapshot)
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// roster returns the dispatching replicas, so that questions wait for the answers of these only.
func (o *overview) roster(ctx context.Context) admin.Roster {
	here := ""
	if o.Settings.Embedded() && o.Settings.Has(environment.RoleDispatch) {
		here = o.Settings.Instance
	}
	return admin.MemberRoster(ctx, o.Connection, here)
}

// spentWait bounds how long a status waits for today's spending.
const spentWait = 2 * time.Second

// spentToday returns today's spending, or nil if no replica answers within spentWait. The rest of a status is useful
// without it.
func (o *overview) spentToday(ctx context.Context) *spend.Account {
	ctx, cancel := context.WithTimeout(ctx, spentWait)
	defer cancel()
	today, err := admin.Spent(ctx, o.Connection, admin.SpentQuestion{})
	if err != nil {
		return nil
	}
	return today
}
