package admin

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher"
	"weir/dispatcher/desk"

	"github.com/nats-io/nats.go/micro"
)

// ReplicaStatus is what one dispatching replica reports about itself and about what it dispatches.
type ReplicaStatus struct {
	Instance string      `json:"instance"`
	Session  string      `json:"session,omitempty"` // its lease
	Version  string      `json:"version"`
	Roles    []string    `json:"roles"`
	Started  time.Time   `json:"started"`
	Ready    bool        `json:"ready"`
	Why      string      `json:"why,omitempty"` // why it is not ready
	Config   ConfigState `json:"config"`
	APIs     []APIStatus `json:"apis"`
	// Streams are changes made to weir's streams by hand in the last hour, as far as this replica has noticed.
	Streams []dispatcher.StreamChange `json:"streams,omitempty"`
	// Ledger says which records of calls were found missing within the last day.
	Ledger string `json:"ledger,omitempty"`
}

// TakesJobs reports whether the replica also has the role ingest.
func (r *ReplicaStatus) TakesJobs() bool { return slices.Contains(r.Roles, string(config.RoleIngest)) }

// APIStatus describes one api as a replica sees it, with the use of its shared limits. The use of rates and of calls in
// flight is this replica's alone.
type APIStatus struct {
	desk.APIDetail
	// Throttled counts the jobs that this replica's intake has refused since it started, because their bucket was full
	// or they would come too late.
	Throttled uint64 `json:"throttled"`

	Limits []limitstate.LimitShown `json:"limits,omitempty"`
	// Clock says that the limits go by a clock that is behind the one that they were counted by.
	Clock string `json:"clock,omitempty"`
}

// Bounds of one check of readiness, and how long its answer holds: questions must not load the store.
const (
	readyTimeout = 3 * time.Second
	readyHolds   = time.Second
)

// readiness caches whether this replica is ready. It is safe for concurrent use.
type readiness struct {
	look func(context.Context) error

	mu     sync.Mutex // guards what follows; held during a check
	looked time.Time
	err    error
}

func (r *readiness) now(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) < readyHolds {
		return r.err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r.err, r.looked = r.look(ctx), time.Now()
	return r.err
}

// status answers with the state of this replica and of all that it dispatches.
func (o operator) status(req micro.Request) {
	limit := min(max(readInquiry(req), 1), desk.MaxInspected)
	s := ReplicaStatus{
		Instance: o.Instance, Session: o.Dispatcher.Session(), Version: cli.Version(), Roles: o.Roles, Started: o.started.UTC(), Ready: true,
		Config: o.Config(), Streams: o.Streams(), Ledger: o.Ledger(),
	}
	if err := o.ready.now(o.ctx); err != nil {
		s.Ready, s.Why = false, err.Error()
	}
	o.Refresh(o.ctx)
	data := marshal(s)
	for ; limit > 0; limit /= 2 { // keys may be long, and messages short
		s.APIs = nil
		for _, api := range o.Dispatcher.Desk.APIs() {
			if detail, err := o.Dispatcher.Desk.Detail(api, limit); err == nil { // otherwise the api was removed meanwhile
				s.APIs = append(s.APIs, APIStatus{detail, o.Throttled(api), limitstate.WithUses(o.Limits(api), detail.Uses), o.Clock(api)})
			}
		}
		if whole := marshal(s); len(whole) <= o.most {
			data = whole
			break
		}
	}
	_ = req.Respond(data) // on an error the asking process has gone
}

// statusWaits allows 250 ms for each further answer: weir cannot know whether a replica without partitions is missing.
var statusWaits = answerWaits{firstAnswer, 250 * time.Millisecond}

// ErrNoDispatcher reports that no dispatching replica answers.
var ErrNoDispatcher = errors.New("no dispatching weir answers")

// Roster reports whether all dispatching replicas are among those that answered.
type Roster func(answered []ReplicaStatus) bool

// MemberRoster reads the leases and returns a Roster that knows the dispatching replicas by them. instance, unless "",
// need not have a lease: on the embedded server no replica has one. It returns nil if the leases cannot be read.
func MemberRoster(ctx context.Context, c *connect.Connection, instance string) Roster {
	ctx, cancel := context.WithTimeout(ctx, rosterWait)
	defer cancel()
	registry, err := lease.FindRegistry(ctx, c.JetStream)
	if err != nil || registry == nil {
		return nil
	}
	members, err := registry.Members(ctx)
	if err != nil || len(members) == 0 && instance == "" {
		return nil
	}
	return func(answered []ReplicaStatus) bool {
		there := func(is func(*ReplicaStatus) bool) bool {
			return slices.ContainsFunc(answered, func(s ReplicaStatus) bool { return is(&s) })
		}
		for _, m := range members {
			if !there(func(s *ReplicaStatus) bool { return s.Session == m.Session }) {
				return false
			}
		}
		return instance == "" || there(func(s *ReplicaStatus) bool { return s.Instance == instance })
	}
}

// rosterWait bounds the time to read the leases.
const rosterWait = time.Second

// Status asks every replica, and returns their answers by name. It asks for at most limit paused and held keys of each
// api. It stops waiting when complete reports that all have answered; without complete, it waits for stragglers. It
// fails with ErrNoDispatcher if no replica answers, and blocks for five seconds at most.
func Status(c *connect.Connection, limit int, complete Roster) ([]ReplicaStatus, error) {
	var all []ReplicaStatus
	failed := error(nil)
	err := askFor(c, statusSubject, marshal(question{Limit: limit}), statusWaits, func(data []byte, wrong *operatorError) bool {
		var s ReplicaStatus
		switch {
		case wrong != nil:
			failed = wrong
		case json.Unmarshal(data, &s) != nil:
			failed = errUnreadable
		default:
			all = append(all, s)
		}
		return complete != nil && complete(all)
	})
	slices.SortFunc(all, func(a, b ReplicaStatus) int { return strings.Compare(a.Instance, b.Instance) })
	switch {
	case len(all) > 0:
		return all, nil
	case errors.Is(err, errNobody), errors.Is(err, errSilent):
		return nil, errors.Join(ErrNoDispatcher, err)
	case err == nil:
		err = failed
	}
	return all, err
}
