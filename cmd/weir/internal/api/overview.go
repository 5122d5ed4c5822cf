package api

import (
	"context"
	"sync"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/doctor"
	"weir/cmd/weir/internal/limitstate"
	"weir/cmd/weir/internal/spend"
	"weir/cmd/weir/internal/status"
)

// apiList answers GET /apis.
type apiList struct {
	APIs []*status.API `json:"apis"`
}

// limitList answers GET /limits.
type limitList struct {
	Limits []limitOf `json:"limits"`
}

// limitOf is a limit that all keys of an api share, and how much of it is used.
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

func overviewRoutes() []route {
	return []route{
		{
			method: "GET", path: "/status", name: "getStatus", role: console.Viewer, answer: &status.Status{},
			summary: "How weir is, and what is wrong: health, apis, pauses and holds, use of limits, spend of today, letters, replicas (weir status)",
			serve:   func(a *API, ctx context.Context, _ *request) (any, error) { return a.statusNow(ctx) },
		},
		{
			method: "GET", path: "/apis", name: "listAPIs", role: console.Viewer, answer: apiList{}, summary: "The apis, as weir status has them",
			serve: func(a *API, ctx context.Context, _ *request) (any, error) {
				s, err := a.statusNow(ctx)
				if err != nil {
					return nil, err
				}
				return apiList{s.APIs}, nil
			},
		},
		{
			method: "GET", path: "/limits", name: "listLimits", role: console.Viewer, answer: limitList{}, summary: "Every shared limit, and how near it is",
			serve: func(a *API, ctx context.Context, _ *request) (any, error) {
				s, err := a.statusNow(ctx)
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
			},
		},
		{
			method: "GET", path: "/replicas", name: "listReplicas", role: console.Viewer, answer: replicaList{}, summary: "The replicas that dispatch, and how many take jobs",
			serve: func(a *API, ctx context.Context, _ *request) (any, error) {
				s, err := a.statusNow(ctx)
				if err != nil {
					return nil, err
				}
				return replicaList{s.Replicas, s.Intakes}, nil
			},
		},
		{
			method: "GET", path: "/doctor", name: "examine", role: console.Viewer, answer: findingList{}, atOnce: 1, time: longRead,
			summary: "What will hurt, each with its fix, as this replica finds it (weir doctor). No api is called",
			serve:   (*API).examine,
		},
		{
			method: "GET", path: "/version", name: "getVersion", role: console.Known, answer: cli.Build{}, summary: "The version of weir that answers (weir version)",
			serve: func(*API, context.Context, *request) (any, error) { return cli.ThisBuild(), nil },
		},
	}
}

func (a *API) examine(ctx context.Context, _ *request) (any, error) {
	o := doctor.Options{Settings: a.Settings, Connection: a.Connection, Config: a.Config()}
	var err error
	if o.Status, err = a.statusNow(ctx); err != nil {
		return nil, err
	}
	return findingList{doctor.Examine(ctx, o)}, nil
}

// How long a status is told again, how long it may take to be worked out, and how many paused and held keys of each api it names.
const (
	statusHolds = snapshotEvery / 2
	statusWait  = 15 * time.Second
	statusKeys  = 100
)

// sharedStatus is the status that was worked out last: whoever asks soon after is told the same.
type sharedStatus struct {
	mu   sync.Mutex // of what follows
	at   time.Time
	last *status.Status
}

// statusNow is how weir is, or was a moment ago. One working out serves all who ask meanwhile.
func (a *API) statusNow(ctx context.Context) (*status.Status, error) {
	a.status.mu.Lock()
	last, at := a.status.last, a.status.at
	a.status.mu.Unlock()
	if last != nil && time.Since(at) < statusHolds {
		return last, nil
	}
	waiting := a.once.DoChan("status", func() (any, error) {
		working, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusWait) // others wait for it, too
		defer cancel()
		s, err := status.Gather(working, a.Connection, statusKeys, a.roster(working))
		if err != nil {
			return nil, err
		}
		a.addSpent(working, s)
		a.status.mu.Lock()
		defer a.status.mu.Unlock()
		a.status.last, a.status.at = s, time.Now()
		return s, nil
	})
	select {
	case done := <-waiting:
		if done.Err != nil {
			return nil, done.Err
		}
		s, _ := done.Val.(*status.Status)
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// roster knows who dispatches, so that nobody is waited for who is not there.
func (a *API) roster(ctx context.Context) control.Roster {
	here := ""
	if a.Settings.Embedded() && a.Settings.Has(config.RoleDispatch) {
		here = a.Settings.Instance
	}
	return control.MemberRoster(ctx, a.Connection, here)
}

// spentWait is how long a status waits for what was spent today. After a start the ledger of the whole day is read, which goes on
// meanwhile.
const spentWait = 2 * time.Second

// today is what was spent today.
type today struct {
	mu  sync.Mutex // of sum; who reads the ledger holds it
	sum spend.Today
}

// addSpent puts in what was spent today, if the ledger was read so far.
func (a *API) addSpent(ctx context.Context, s *status.Status) {
	waiting := a.once.DoChan("spent", func() (any, error) {
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), longRead)
		defer cancel()
		a.today.mu.Lock()
		defer a.today.mu.Unlock()
		if err := a.today.sum.Update(reading, a.Connection.JetStream, time.Now()); err != nil {
			return nil, err
		}
		return a.today.sum.ByAPI(), nil
	})
	timer := time.NewTimer(spentWait)
	defer timer.Stop()
	select {
	case done := <-waiting:
		sums, _ := done.Val.(map[string]spend.Sum)
		if done.Err != nil {
			return // the rest is of use without
		}
		for _, api := range s.APIs {
			api.Spent, api.InDoubt = sums[api.API].Text()
		}
	case <-timer.C:
	}
}

// configured are the names of the configured apis.
func configured(c *config.Config) (names []string) {
	for i := range c.APIs {
		names = append(names, c.APIs[i].Name)
	}
	return names
}
