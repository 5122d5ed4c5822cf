package api

import (
	"context"
	"sync"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/doctor"
	"weir/cmd/weir/internal/limitstate"
	"weir/cmd/weir/internal/spend"
	"weir/cmd/weir/internal/status"

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

// overview is how weir is, worked out once for all who ask meanwhile.
type overview struct {
	*Options

	once singleflight.Group

	mu   sync.Mutex // of what follows; whoever asks soon after is told the same
	at   time.Time
	last *status.Status

	reading sync.Mutex // of today; who reads the ledger holds it
	today   spend.Today
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

// How long a status is told again, how long it may take to be worked out, and how many paused and held keys of each api it names.
const (
	statusHolds = snapshotEvery / 2
	statusWait  = 15 * time.Second
	statusKeys  = 100
)

// now is how weir is, or was a moment ago. One working out serves all who ask meanwhile.
func (o *overview) now(ctx context.Context) (*status.Status, error) {
	o.mu.Lock()
	last, at := o.last, o.at
	o.mu.Unlock()
	if last != nil && time.Since(at) < statusHolds {
		return last, nil
	}
	waiting := o.once.DoChan("status", func() (any, error) {
		working, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusWait) // others wait for it, too
		defer cancel()
		spent := o.spentToday(working) // before the limits are asked for: what they count has every call of it
		s, err := status.Gather(working, o.Connection, statusKeys, o.roster(working))
		if err != nil {
			return nil, err
		}
		if spent != nil {
			for _, api := range s.APIs {
				api.Spent, api.InDoubt = spent[api.API].Text()
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last, o.at = s, time.Now()
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
func (o *overview) roster(ctx context.Context) control.Roster {
	here := ""
	if o.Settings.Embedded() && o.Settings.Has(config.RoleDispatch) {
		here = o.Settings.Instance
	}
	return control.MemberRoster(ctx, o.Connection, here)
}

// spentWait is how long a status waits for what was spent today. After a start the ledger of the whole day is read, which goes on
// meanwhile.
const spentWait = 2 * time.Second

// spentToday is what was spent today on each api; nil where the ledger was not read so far, or cannot be: the rest is of use without.
func (o *overview) spentToday(ctx context.Context) map[string]spend.Sum {
	waiting := o.once.DoChan("spent", func() (any, error) {
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), longRead)
		defer cancel()
		o.reading.Lock()
		defer o.reading.Unlock()
		if err := o.today.Update(reading, o.Connection.JetStream, time.Now()); err != nil {
			return nil, err
		}
		return o.today.ByAPI(), nil
	})
	timer := time.NewTimer(spentWait)
	defer timer.Stop()
	select {
	case done := <-waiting:
		sums, _ := done.Val.(map[string]spend.Sum)
		return sums
	case <-timer.C:
		return nil
	}
}
