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
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher"
	"weir/dispatcher/desk"

	"github.com/nats-io/nats.go/micro"
)

// ReplicaStatus is one dispatching replica's report about itself and the apis that it dispatches.
type ReplicaStatus struct {
	Instance string      `json:"instance"`
	Session  string      `json:"session,omitempty"` // the session of its lease
	Version  string      `json:"version"`
	Roles    []string    `json:"roles"`
	Started  time.Time   `json:"started"`
	Ready    bool        `json:"ready"`
	Why      string      `json:"why,omitempty"` // why the replica is not ready
	Config   ConfigState `json:"config"`
	APIs     []APIStatus `json:"apis"`
	// Streams are changes by hand to weir's streams in the last hour, as far as this replica has noticed them.
	Streams []dispatcher.StreamChange `json:"streams,omitempty"`
	// Lacking are the NATS servers that lack current copies of weir's streams, as far as this replica has looked.
	Lacking []Lacking `json:"lacking,omitempty"`
	// Ledger says which records of calls were found missing within the last day.
	Ledger string `json:"ledger,omitempty"`
}

// CatchesUp is how long copies may be missing until that is a problem. A NATS server that was only restarted catches up
// sooner.
const CatchesUp = 10 * time.Minute

// Lacking is a NATS server that lacks current copies of weir's streams. If Server and Peer are "", it stands for copies
// for which the cluster has no server or, if Leaderless, for streams without a leader.
type Lacking struct {
	Server     string         `json:"server"`         // its name, "" if the name is not known
	Peer       string         `json:"peer,omitempty"` // its id in Raft groups
	Since      time.Time      `json:"since"`          // since when the first of the copies is missing, as far as it is known
	Offline    bool           `json:"offline,omitempty"`
	Leaderless bool           `json:"leaderless,omitempty"`
	Behind     int            `json:"behind,omitempty"` // how many of its copies answer their leaders, but have fewer entries
	Others     bool           `json:"others,omitempty"` // another server lacks a copy of one of the streams too
	Count      int            `json:"count"`            // how many streams these are
	Streams    []StreamCopies `json:"streams"`          // the first of them
}

// Same reports whether two findings are about the same server, both about streams without a leader, or both about
// copies without a server.
func (l Lacking) Same(other Lacking) bool {
	if l.Peer != "" && other.Peer != "" {
		return l.Peer == other.Peer
	}
	return l.Leaderless == other.Leaderless && l.Server == other.Server && (l.Server != "" || l.Peer == other.Peer)
}

// StreamCopies says how many copies of a stream are current, and how many the stream is configured to have. Both are 0
// for a stream without a leader.
type StreamCopies struct {
	Stream  string `json:"stream"`
	Current int    `json:"current"`
	Copies  int    `json:"copies"`
	Lag     uint64 `json:"lag,omitempty"` // by how many entries the server's copy is behind, if it answers the leader
}

// TakesJobs reports whether the replica also has the role ingest.
func (r *ReplicaStatus) TakesJobs() bool {
	return slices.Contains(r.Roles, string(environment.RoleIngest))
}

// APIStatus describes one api as a replica sees it, with the levels of the api's shared limits. The use of rates and of
// calls in flight counts only this replica's calls.
type APIStatus struct {
	desk.APIDetail
	// Throttled counts the jobs that this replica's intake has refused since it started, because their bucket was full
	// or their call would have come too late.
	Throttled uint64 `json:"throttled"`

	Limits []limitstate.LimitShown `json:"limits,omitempty"`
	// Clock says that the clock is behind the clock by which the limits were counted; "" if it is not.
	Clock string `json:"clock,omitempty"`

	Callback *CallbackStatus `json:"callback,omitempty"` // nil: the api has none
}

// CallbackStatus is how far an api's callback is behind. It is the same for all replicas, whichever replica posts the
// ends of jobs.
type CallbackStatus struct {
	// Receiver is where weir posts the ends, as the configuration has it: with ${env:NAME} or ${file:/path} in place of
	// what is secret.
	Receiver string `json:"receiver"`
	// Unknown says that the replica does not know yet how far the callback has come. The other numbers and times then
	// count only the ends of the types that it knows of.
	Unknown bool      `json:"unknown,omitempty"`
	Behind  uint64    `json:"behind"`                 // ends of jobs that are not posted yet
	Oldest  time.Time `json:"oldest,omitzero"`        // when the oldest of these was stored, if known
	Failing time.Time `json:"failing_since,omitzero"` // when the receiver began to accept no post; absent if it accepts posts
	Why     string    `json:"why,omitempty"`          // the receiver's last answer, if it accepts no post

	GivenUp    uint64    `json:"given_up"`               // ends given up since the callback was configured
	GivenUpAt  time.Time `json:"given_up_at,omitzero"`   // when the last end was given up
	GivenUpWhy string    `json:"given_up_why,omitempty"` // why the last end was given up
}

// CallbackName returns the name under which an api's callback is tested. The name contains a slash, and no
// destination's name does.
func CallbackName(api string) string { return api + "/callback" }

// One check of readiness takes readyTimeout at most. Its result is used again for readyHolds, so that frequent
// questions do not load the store.
const (
	readyTimeout = 3 * time.Second
	readyHolds   = time.Second
)

// readiness caches the last check of whether this replica is ready. It is safe for concurrent use.
type readiness struct {
	look func(context.Context) error

	mu     sync.Mutex // guards looked and err; held during a check
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

// status answers with the state of this replica and of all apis that it dispatches.
func (o operator) status(req micro.Request) {
	limit := min(max(readInquiry(req), 1), desk.MaxInspected)
	s := ReplicaStatus{
		Instance: o.Instance, Session: o.Dispatcher.Session(), Version: cli.Version(), Roles: o.Roles, Started: o.started.UTC(), Ready: true,
		Config: o.Config(), Streams: o.Streams(), Lacking: o.Lacking(), Ledger: o.Ledger(),
	}
	if err := o.ready.now(o.ctx); err != nil {
		s.Ready, s.Why = false, err.Error()
	}
	o.Refresh(o.ctx)
	data := marshal(s)
	for ; limit > 0; limit /= 2 { // keys may be long, and messages short
		s.APIs = nil
		for _, api := range o.Dispatcher.Desk.APIs() {
			// An error means that the api was removed meanwhile.
			if detail, err := o.Dispatcher.Desk.Detail(api, limit); err == nil {
				limits := limitstate.WithUses(o.Limits(api), detail.Uses, o.Instance)
				s.APIs = append(s.APIs, APIStatus{detail, o.Throttled(api), limits, o.Clock(api), o.Callback(api)})
			}
		}
		if whole := marshal(s); len(whole) <= o.most {
			data = whole
			break
		}
	}
	_ = req.Respond(data) // on an error the asking process has gone
}

// statusWaits waits only 250 ms for each further answer, because weir cannot know whether another replica will answer.
var statusWaits = answerWaits{firstAnswer, 250 * time.Millisecond}

// ErrNoDispatcher reports that no dispatching replica answers.
var ErrNoDispatcher = errors.New("no dispatching weir answers")

// Roster reports whether every dispatching replica is among the given answers.
type Roster func(answered []ReplicaStatus) bool

// MemberRoster reads the leases and returns a Roster of the replicas that have a lease. If instance is not "", the
// Roster also requires an answer of that instance, because on the embedded server no replica has a lease. MemberRoster
// returns nil if it cannot read the leases, or if there is no replica to require.
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

// rosterWait bounds how long MemberRoster may read leases.
const rosterWait = time.Second

// Status asks every replica, and returns the answers, sorted by instance. Each answer has at most limit paused and held
// keys of each api. Status stops waiting when complete returns true; if complete is nil, Status waits for each further
// answer for 250 ms. Status fails with ErrNoDispatcher if no replica answers within five seconds.
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
