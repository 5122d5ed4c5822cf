package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go"
)

// awaitedReplicas asks all dispatching replicas until each one has answered or may no longer make calls. A replica that
// is stopped or disconnected does not answer, and may continue later. So awaitedReplicas waits until that replica's
// lease has run out, by the rule that replicas use among themselves, and then ends the lease for good. Before that
// replica calls under another lease, it puts in force what operators have commanded meanwhile (AwaitApplied,
// AwaitConfigApplied).
type awaitedReplicas struct {
	c        *connect.Connection
	registry *lease.Registry   // nil if the server has no registry of replicas
	alone    bool              // a weir without a lease may make calls: the server is its own
	unheard  bool              // that weir has not answered the last question
	silent   map[string]silent // by session: replicas that have a lease and have not answered
	over     map[string]string // by session: the instances of silent replicas whose leases have ended
	question []byte
	waits    answerWaits
	again    time.Duration // waits.first of each question after the first one
}

// silent is the lease of a replica that has not answered. since is when this process first saw the lease's revision.
type silent struct {
	lease.Member
	revision uint64
	since    time.Time
}

// replica identifies a replica that has answered.
type replica struct{ instance, session string }

// againAnswer is how long each question after the first one waits for its first answer.
const againAnswer = time.Second

// awaitReplicas reads which replicas have leases. The command about which it will ask must already be stored.
func awaitReplicas(ctx context.Context, c *connect.Connection) (*awaitedReplicas, error) {
	m := &awaitedReplicas{c: c, silent: map[string]silent{}, over: map[string]string{}, question: marshal(question{Limit: 1}), waits: answerWaits{firstAnswer, nextAnswer}, again: againAnswer}
	var err error
	if m.registry, err = lease.FindRegistry(ctx, c.JetStream); err != nil {
		return nil, c.Explain(err)
	}
	_, err = c.Conn.Request(aloneSubject, nil, firstAnswer)
	// Beside an external server a program that only listens to all subjects lets the request time out, too.
	silent := errors.Is(err, nats.ErrTimeout)
	m.alone = err == nil || silent && c.Conn.ConnectedServerName() == connect.InsideName
	if err != nil && !silent && !errors.Is(err, nats.ErrNoResponders) {
		return nil, c.Explain(err)
	}
	return m, m.look(ctx, nil)
}

// StandAlone tells commands that a weir without a lease may make calls, until stop is called. A weir on its embedded
// server has no lease. It must call StandAlone before it reads the pauses and on the connection with which it reads
// them, so that each command either precedes the reading or awaits this weir.
func StandAlone(nc *nats.Conn) (stop func() error, err error) {
	sub, err := nc.Subscribe(aloneSubject, func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		return nil, err
	}
	return sub.Unsubscribe, nil
}

// ask sends the question to all replicas once and passes each answer to take. take returns the replica that answered.
// ask fails with errSilent if no replica has answered and there is no registry that says which replicas run.
func (m *awaitedReplicas) ask(ctx context.Context, subject string, take func(data []byte) replica) error {
	answered := map[replica]bool{}
	err := askFor(m.c, subject, m.question, m.waits, func(data []byte, wrong *operatorError) bool {
		if wrong == nil {
			answered[take(data)] = true
		}
		return false
	})
	m.waits.first = m.again
	delete(answered, replica{}) // an answer that cannot be read
	m.unheard = m.alone && len(answered) == 0
	if err != nil && !errors.Is(err, errNobody) && (m.registry == nil || !errors.Is(err, errSilent)) {
		return err
	}
	return m.look(ctx, answered)
}

// look finds the replicas that have a lease and have not answered. It ends each lease that was not renewed for its term
// and a margin.
func (m *awaitedReplicas) look(ctx context.Context, answered map[replica]bool) error {
	if m.registry == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	members, err := m.registry.Members(ctx)
	if err != nil {
		return m.c.Explain(err)
	}
	now, before := time.Now(), m.silent
	m.silent = map[string]silent{}
	for _, s := range members {
		if answered[replica{s.Member.Instance, s.Session}] {
			continue
		}
		if seen, ok := before[s.Session]; ok && seen.revision == s.Revision {
			m.silent[s.Session] = seen
		} else {
			m.silent[s.Session] = silent{*s.Member, s.Revision, now}
		}
	}
	for session, s := range m.silent {
		if !lease.Lapsed(s.since, now) {
			continue
		}
		ended, _, err := m.registry.Expel(ctx, session, s.revision)
		if err != nil {
			return m.c.Explain(err)
		}
		if ended {
			delete(m.silent, session)
			m.over[session] = s.Instance
		}
	}
	m.noteEnded(before, answered, members)
	return nil
}

// noteEnded records the silent replicas whose leases another process has ended.
func (m *awaitedReplicas) noteEnded(before map[string]silent, answered map[replica]bool, members []lease.Sighting) {
	if answered == nil {
		return
	}
	for session, s := range before {
		there := slices.ContainsFunc(members, func(m lease.Sighting) bool { return m.Session == session })
		back := false
		for who := range answered {
			back = back || who.instance == s.Instance // under another lease
		}
		if !there && !back {
			m.over[session] = s.Instance
		}
	}
}

// complete reports whether every replica that may make calls has answered.
func (m *awaitedReplicas) complete() bool { return len(m.silent) == 0 && !m.unheard }

// missing returns a message that names the replicas that have not answered and may still make calls.
func (m *awaitedReplicas) missing() string {
	if m.unheard && len(m.silent) == 0 {
		return fmt.Sprintf("the weir that runs this server has not answered within %s", commandTimeout)
	}
	var names []string
	for _, s := range m.silent {
		names = append(names, cli.Visible(s.Instance))
	}
	slices.Sort(names)
	return fmt.Sprintf("%s %s not answered within %s and %s the right to call: %s", cli.Count(len(names), "dispatching replica"),
		cli.Verb(len(names), "has", "have"), commandTimeout, cli.Verb(len(names), "keeps", "keep"), strings.Join(names, ", "))
}

// nobody returns the message for a command that is stored while no replica answers and none may make calls. The message
// says from when on the command is in force.
func (m *awaitedReplicas) nobody() string {
	if len(m.over) == 0 {
		return "no dispatching weir runs, it is in force from its next start on"
	}
	return "no dispatching weir answers, it is in force for whichever calls next" + m.overdue()
}

// overdue returns a message that names the replicas that did not answer and may no longer make calls. It returns "" if
// all have answered.
func (m *awaitedReplicas) overdue() string {
	if len(m.over) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Values(m.over))
	for i := range names {
		names[i] = cli.Visible(names[i])
	}
	return fmt.Sprintf("; %s did not answer, and may call nothing before it has heard of it: %s", cli.Count(len(names), "replica"), strings.Join(names, ", "))
}
