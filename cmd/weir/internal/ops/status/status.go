package status

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/deadletter"
	"weir/dispatcher/desk"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

// Status is the state of weir.
type Status struct {
	Healthy  bool      `json:"healthy"`
	Problems []Problem `json:"problems"`
	Warnings []Problem `json:"warnings"` // what keeps jobs waiting as configured, callbacks that are behind, NATS servers that are to catch up
	At       time.Time `json:"at"`
	Server   string    `json:"server"`
	Config   uint64    `json:"config"` // the newest version that a replica follows
	APIs     []*API    `json:"apis"`
	Replicas []Replica `json:"replicas"`
	Intakes  int       `json:"intakes"` // replicas that accept jobs; -1 if this user may not ask
	Letters  []Letters `json:"letters"`
	// LettersAll is how many letters are kept; Letters is empty if they have too many keys to be counted apart quickly.
	LettersAll uint64 `json:"letters_all"`

	lacking []admin.Lacking // one for each server
}

// API is one api over all replicas.
type API struct {
	API        string `json:"api"`
	Partitions int    `json:"partitions"`
	Owned      int    `json:"owned"`
	// Owners are the replicas that dispatch its partitions, by the partitions' numbers; "" if no replica claims one.
	Owners   []string `json:"owners,omitempty"`
	Keys     int      `json:"keys"`
	Jobs     int      `json:"jobs"`
	InFlight int      `json:"in_flight"`
	// Accepted and Called count the jobs accepted and the calls ended since the replicas dispatch the api. Throttled
	// counts the jobs that they have refused since they started. A replica that restarts begins at 0, and replicas that
	// only accept jobs are not asked.
	Accepted  uint64 `json:"accepted"`
	Called    uint64 `json:"called"`
	Throttled uint64 `json:"throttled"`
	// Since is when the first of these replicas began to count.
	Since time.Time `json:"counted_since"`

	Pause      *schedule.Pause         `json:"pause,omitempty"` // of the whole api
	PausedKeys int                     `json:"paused_keys"`
	Pauses     []desk.KeyPause         `json:"pauses,omitempty"`
	HeldKeys   int                     `json:"held_keys"`
	Holds      []schedule.HoldState    `json:"holds,omitempty"`
	Limits     []limitstate.LimitShown `json:"limits,omitempty"`
	// Callback is how far the callback is behind; nil if the api has none.
	Callback *admin.CallbackStatus `json:"callback,omitempty"`
	// Spent and InDoubt are today's, by the ledger; "" if they are not known.
	Spent   string `json:"spent_today,omitempty"`
	InDoubt string `json:"in_doubt_today,omitempty"`
	// Operations are what the api goes on working on; nil if there are none.
	Operations *desk.Operations `json:"operations,omitempty"`
	// ReusedToday counts jobs that got the answers of equal ones, and SavedToday is what their calls would have cost,
	// by the ledger.
	ReusedToday int64  `json:"reused_today,omitempty"`
	SavedToday  string `json:"saved_today,omitempty"`
	// Reuse says which answers the replicas may give again; absent if every job is called.
	Reuse *desk.ReuseState `json:"reuse,omitempty"`

	limiterDown bool    // a replica cannot reach the store of the api's limits
	limiter     Problem // why the api's limits refuse calls, and the fix; zero: they refuse none
	clock       string  // says that the clock of the api's limits is behind
}

// Replica is a dispatching replica.
type Replica struct {
	Instance string    `json:"instance"`
	Version  string    `json:"version"`
	Roles    []string  `json:"roles"`
	Started  time.Time `json:"started"`
	Ready    bool      `json:"ready"`
	Why      string    `json:"why,omitempty"`
	Owned    int       `json:"partitions"`
	Config   uint64    `json:"config"`
}

// Letters counts the letters of one api and reason.
type Letters struct {
	API     string            `json:"api"`
	Reason  deadletter.Reason `json:"reason"`
	Letters uint64            `json:"letters"`
}

// Gather asks all replicas, and counts the letters. It asks for at most limit paused and held keys of each api. It
// stops waiting when complete reports that all replicas have answered. If complete is nil, it waits for late answers.
// If no dispatching replica answers, or the stream of the letters has no leader, the status has a problem, and Gather
// returns no error. Gather blocks for some seconds at most.
func Gather(ctx context.Context, c *connect.Connection, limit int, complete admin.Roster) (*Status, error) {
	s := &Status{At: time.Now().UTC(), Server: c.At, APIs: []*API{}, Replicas: []Replica{}, Letters: []Letters{}, Problems: []Problem{}, Warnings: []Problem{}}
	var replicas []admin.ReplicaStatus
	var err, intakesErr error
	var asking sync.WaitGroup // two requests, each of which waits for late answers
	takeJobs := make(chan int, 1)
	both, refused := context.WithCancel(ctx)
	defer refused()
	asking.Go(func() {
		replicas, err = admin.Status(c, limit, complete)
		if complete != nil {
			takeJobs <- takingJobs(replicas)
		}
		if err != nil && !errors.Is(err, admin.ErrNoDispatcher) {
			refused() // Gather fails, so no answer to the other request is needed
		}
	})
	s.Intakes, intakesErr = intakes(both, c, takeJobs)
	asking.Wait()
	switch {
	case errors.Is(err, admin.ErrNoDispatcher):
		s.problem("no replica dispatches: none with the role dispatch answers", "start `weir serve`, or look whether it is stopped or its machine overloaded")
	case err != nil:
		return nil, err
	}
	for i := range replicas {
		s.add(&replicas[i])
	}
	s.sumAccounts()
	for _, a := range s.APIs {
		a.cut(limit)
	}
	slices.SortFunc(s.APIs, func(a, b *API) int { return strings.Compare(a.API, b.API) })
	if intakesErr != nil {
		return nil, c.Explain(intakesErr)
	}
	switch err := s.countLetters(ctx, c); {
	case errors.Is(err, stream.ErrNoLeader): // the replicas say which other streams have none
		s.problem("the dead letters are not counted: no leader answers for their stream",
			"start the NATS servers that do not run, and mend the connections between them")
	case err != nil:
		return nil, c.Explain(err)
	}
	s.judge()
	return s, nil
}

// AddSpent adds what was spent on each api today. today must be grouped by api. AddSpent adds nothing if today is nil
// or incomplete.
func (s *Status) AddSpent(today *spend.Account) {
	if today == nil || today.Unfinished() {
		return
	}
	for _, api := range s.APIs {
		at := slices.IndexFunc(today.Groups, func(g *spend.Group) bool { return g.API == api.API })
		switch {
		case at >= 0:
			of := today.Groups[at]
			api.Spent, api.InDoubt, api.ReusedToday, api.SavedToday = of.Spent, of.InDoubt, of.Reused, of.Saved
		case today.Lines == 0: // otherwise the api may be in a group that was cut off
			api.Spent, api.InDoubt = ledger.Money(0), ledger.Money(0)
		}
	}
}

// add adds a replica's answer to the status.
func (s *Status) add(r *admin.ReplicaStatus) {
	owned := 0
	for i := range r.APIs {
		a := &r.APIs[i]
		owned += a.Owned
		s.api(a.API).add(a, r.Instance)
	}
	s.Replicas = append(s.Replicas, Replica{
		Instance: r.Instance, Version: r.Version, Roles: r.Roles, Started: r.Started, Ready: r.Ready, Why: r.Why, Owned: owned, Config: r.Config.Version,
	})
	s.Config = max(s.Config, r.Config.Version)
	for _, c := range r.Streams {
		s.changed(c)
	}
	for _, l := range r.Lacking {
		s.lack(l)
	}
	if r.Ledger != "" && !slices.ContainsFunc(s.Problems, func(p Problem) bool { return p.What == r.Ledger }) {
		s.problem(r.Ledger, "sums and budgets may lack what they cost: look at the disk, and hold them against the API's bill; this is told for a day")
	}
	if r.Config.Why != "" {
		s.problem("replica "+r.Instance+" goes on by configuration "+version(r.Config.Version)+", not "+version(r.Config.Seen)+": "+r.Config.Why,
			"mend what it says, or `weir config rollback`")
	}
}

func (s *Status) api(name string) *API {
	for _, a := range s.APIs {
		if a.API == name {
			return a
		}
	}
	a := &API{API: name}
	s.APIs = append(s.APIs, a)
	return a
}

func (a *API) add(r *admin.APIStatus, instance string) {
	a.Partitions = max(a.Partitions, r.Partitions)
	a.Owners = append(a.Owners, make([]string, a.Partitions-len(a.Owners))...)
	for _, number := range r.Owns {
		if number >= 0 && number < a.Partitions {
			a.Owners[number] = instance
		}
	}
	a.Owned, a.Keys, a.Jobs, a.InFlight = a.Owned+r.Owned, a.Keys+r.Keys, a.Jobs+r.Jobs, a.InFlight+r.InFlight
	a.Accepted, a.Called, a.Throttled = a.Accepted+r.Arrived, a.Called+r.Called, a.Throttled+r.Throttled
	if a.Since.IsZero() || r.Since.Before(a.Since) {
		a.Since = r.Since
	}
	if r.Pause != nil {
		a.Pause = r.Pause
	}
	paused := r.Paused
	if r.Pause != nil {
		paused--
	}
	if paused > a.PausedKeys { // each replica reports all paused keys
		a.PausedKeys, a.Pauses = paused, r.Pauses
	}
	a.HeldKeys += r.HeldKeys
	a.Holds = append(a.Holds, r.Holds...)
	a.addOperations(r.Operations)
	if r.Reuse != nil {
		if a.Reuse == nil {
			a.Reuse = &desk.ReuseState{}
		}
		a.Reuse.Answers, a.Reuse.Bytes, a.Reuse.Waiting = a.Reuse.Answers+r.Reuse.Answers, a.Reuse.Bytes+r.Reuse.Bytes, a.Reuse.Waiting+r.Reuse.Waiting
	}
	if r.LimiterWhy != "" {
		a.limiter = Problem{r.LimiterWhy, r.LimiterFix}
	}
	a.limiterDown = a.limiterDown || r.LimiterDown && r.LimiterWhy == ""
	a.clock = cmp.Or(a.clock, r.Clock)
	if a.Callback == nil || a.Callback.Unknown && r.Callback != nil { // each replica that knows it reports the same
		a.Callback = r.Callback
	}
	for i := range r.Limits {
		a.addLimit(r.Limits[i])
	}
}

// addLimit adds a replica's use of a limit. If each replica counts the limit itself, the uses are added up. If one
// store counts it for all replicas, the use comes from the first replica that knows it. If each replica has the limit
// for itself, the greatest use is kept.
func (a *API) addLimit(l limitstate.LimitShown) {
	for i := range a.Limits {
		have := &a.Limits[i]
		switch {
		case have.Limit != l.Limit:
			continue
		case l.Replica != "":
			if l.Used > have.Used {
				*have = l
			}
		case l.Unit == limitstate.InCalls, l.PerMS > 0:
			have.Used += l.Used
			if l.Excess > have.Excess {
				have.Excess, have.ExcessUntil = l.Excess, l.ExcessUntil
			}
		case have.Unknown && !l.Unknown:
			*have = l
		}
		return
	}
	a.Limits = append(a.Limits, l)
}

// sumAccounts adds up, over all apis of an account, the use of the account's rates and calls in flight.
func (s *Status) sumAccounts() {
	used := map[string]int64{}
	for _, a := range s.APIs {
		for i := range a.Limits {
			used[a.Limits[i].Limit] += a.Limits[i].Used
		}
	}
	for _, a := range s.APIs {
		for i := range a.Limits {
			if l := &a.Limits[i]; sumsUp(*l) {
				l.Used = used[l.Limit]
			}
		}
	}
}

// cut shortens the lists of pauses and holds to limit entries.
func (a *API) cut(limit int) {
	a.Pauses = a.Pauses[:min(len(a.Pauses), limit)]
	a.Holds = a.Holds[:min(len(a.Holds), limit)]
}

// intakeWait is how long intakes waits for a further answer. If all intakes known so far have answered, it waits only
// intakeGrace.
const (
	intakeWait  = 250 * time.Millisecond
	intakeGrace = 25 * time.Millisecond
)

// takingJobs returns how many of the replicas accept jobs.
func takingJobs(replicas []admin.ReplicaStatus) (n int) {
	for i := range replicas {
		if replicas[i].TakesJobs() {
			n++
		}
	}
	return n
}

// intakes counts the replicas that accept jobs. It returns -1 if this user may not ask. fewest delivers the number of
// replicas that are known to accept jobs.
func intakes(ctx context.Context, c *connect.Connection, fewest <-chan int) (n int, err error) {
	subject, err := micro.ControlSubject(micro.PingVerb, ingest.ServiceName, "")
	if err != nil {
		return 0, err
	}
	ctx, done := c.Denied.Tolerate(ctx, subject) // the context ends if the server refuses this request, and only then
	defer done()
	inbox, answers := c.Conn.NewRespInbox(), make(chan *nats.Msg, mostIntakes)
	sub, err := c.Conn.ChanSubscribe(inbox, answers)
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.Conn.PublishRequest(subject, inbox, nil); err != nil {
		return 0, err
	}
	wait, least := time.NewTimer(connect.RequestTimeout), -1
	defer wait.Stop()
	for {
		select {
		case msg := <-answers:
			if msg.Header.Get("Status") == noResponders {
				return n, nil
			}
			n++
			wait.Reset(intakeWait)
		case least = <-fewest:
		case <-wait.C:
			return n, nil
		case <-ctx.Done():
			return -1, nil // the server refused the question
		}
		if least > 0 && n >= least {
			wait.Reset(intakeGrace)
		}
	}
}

// noResponders is the status with which a server answers if no client listens. mostIntakes bounds the answers that wait
// to be read.
const (
	noResponders = "503"
	mostIntakes  = 1024
)

// mostLetterKeys bounds the keys of letters up to which letters are counted by api and reason. The server counts by
// subject, all subjects at once.
const mostLetterKeys = 200_000

func (s *Status) countLetters(ctx context.Context, c *connect.Connection) error {
	letters, err := c.JetStream.Stream(ctx, deadletter.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	info := letters.CachedInfo()
	s.LettersAll = info.State.Msgs
	if full := info.Config.MaxBytes; full > 0 && info.State.Bytes > uint64(full)/10*9 {
		s.problem("the dead letters are nearly full: what overflows will be refused with 503", "`weir dead redrive` or `weir dead purge` some, or raise dead_letters.max_bytes")
	}
	if info.State.NumSubjects > mostLetterKeys {
		return nil
	}
	counts, err := deadletter.Count(ctx, letters)
	if err != nil {
		return err
	}
	for of, n := range counts {
		s.Letters = append(s.Letters, Letters{of.API, of.Reason, n})
	}
	slices.SortFunc(s.Letters, func(a, b Letters) int {
		return strings.Compare(a.API+" "+string(a.Reason), b.API+" "+string(b.Reason))
	})
	return nil
}

func (a *API) addOperations(more *desk.Operations) {
	switch o := a.Operations; {
	case more == nil:
	case o == nil:
		first := *more
		a.Operations = &first
	default:
		o.UnderWay, o.SilentMS = o.UnderWay+more.UnderWay, max(o.SilentMS, more.SilentMS)
		if o.Oldest.IsZero() || !more.Oldest.IsZero() && more.Oldest.Before(o.Oldest) {
			o.Oldest = more.Oldest
		}
	}
}
