package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"
)

// listing makes the intake a NATS micro service (ADR-32), so that nats micro shows its requests and errors.
//
// It does not use the micro service of nats.go, which counts an error, and measures the time, only until the handler
// returns. The intake answers later, when the stream has answered, so nats.go would count every refusal for a full
// bucket as a success.
type listing struct {
	conn      *nats.Conn
	info      micro.Info
	started   time.Time
	endpoints []*endpoint // complete before answerQuestions subscribes
	questions []*nats.Subscription
}

// endpoint is one subject of the intake, with the statistics of the jobs that came in on it.
type endpoint struct {
	name string
	sub  *nats.Subscription

	mu        sync.Mutex // guards what follows
	answers   int
	errors    int
	lastError string
	took      time.Duration // the sum over all answers
}

func newListing(conn *nats.Conn, version string) *listing {
	return &listing{conn: conn, info: micro.Info{
		ServiceIdentity: micro.ServiceIdentity{Name: ServiceName, ID: nuid.Next(), Version: version, Metadata: map[string]string{"weir.help": "weir help jobs"}},
		Type:            micro.InfoResponseType,
		Description:     "takes jobs for rate-limited apis: publish to weir.jobs.<api>.<key>",
	}}
}

// add listens on a subject. At most waitingMsgs messages and waitingBytes bytes may wait for handle.
func (l *listing) add(name, subject string, handle func(*endpoint, *nats.Msg), waitingMsgs, waitingBytes int) error {
	e := &endpoint{name: name}
	sub, err := l.conn.QueueSubscribe(subject, QueueGroup, func(m *nats.Msg) { handle(e, m) })
	if err != nil {
		return fmt.Errorf("listen on %s: %w", subject, err)
	}
	e.sub = sub
	l.endpoints = append(l.endpoints, e)
	l.info.Endpoints = append(l.info.Endpoints, micro.EndpointInfo{
		Name: name, Subject: subject, QueueGroup: QueueGroup, Metadata: endpointMetadata(strings.TrimSuffix(subject, ">")),
	})
	if err := sub.SetPendingLimits(waitingMsgs, waitingBytes); err != nil {
		return fmt.Errorf("listen on %s: %w", subject, err)
	}
	return nil
}

// endpointMetadata describes requests and answers for people who find the service without a manual.
func endpointMetadata(prefix string) map[string]string {
	receipt, refusal := client.WireForms()
	return map[string]string{
		"weir.subject": prefix + "<api>.<key>",
		"weir.request": "the body of the call, as it is; many jobs in one message: weir help submission",
		"weir.headers": strings.Join([]string{
			HeaderMsgID, HeaderMethod, HeaderPath, HeaderQuery, HeaderForward + "<Name>", headerContentType, HeaderDeadline, HeaderNotBefore, HeaderPriority, HeaderCost, HeaderReplyTo, HeaderThrottled, HeaderTrace, HeaderBaggage,
		}, " "),
		"weir.schema.receipt": Schema(receipt), "weir.schema.refusal": Schema(refusal),
	}
}

// answerQuestions starts to answer the requests of nats micro: to all services, to services of this name, and to this
// instance.
func (l *listing) answerQuestions() error {
	l.started = time.Now().UTC()
	for verb, answer := range map[micro.Verb]func() any{
		micro.PingVerb:  func() any { return micro.Ping{ServiceIdentity: l.info.ServiceIdentity, Type: micro.PingResponseType} },
		micro.InfoVerb:  func() any { return l.info },
		micro.StatsVerb: func() any { return l.stats() },
	} {
		for _, of := range [][2]string{{}, {l.info.Name}, {l.info.Name, l.info.ID}} {
			subject, err := micro.ControlSubject(verb, of[0], of[1])
			if err != nil {
				return fmt.Errorf("listen for questions: %w", err)
			}
			sub, err := l.conn.Subscribe(subject, func(m *nats.Msg) {
				if m.Reply != "" && !notTheirs(m.Reply) {
					data, err := json.Marshal(answer())
					if err != nil {
						panic("ingest: an answer that JSON cannot carry: " + err.Error())
					}
					_ = m.Respond(data) // the tool asks again
				}
			})
			if err != nil {
				return fmt.Errorf("listen on %s: %w", subject, err)
			}
			l.questions = append(l.questions, sub)
		}
	}
	return nil
}

// stop ends all subscriptions. Messages that have already arrived are still handled.
func (l *listing) stop() error {
	subs := l.questions
	for _, e := range l.endpoints {
		subs = append(subs, e.sub)
	}
	for _, sub := range subs {
		if err := sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			return fmt.Errorf("stop listening on %s: %w", sub.Subject, err)
		}
	}
	return nil
}

func (l *listing) stats() micro.Stats {
	stats := micro.Stats{ServiceIdentity: l.info.ServiceIdentity, Type: micro.StatsResponseType, Started: l.started}
	for i, e := range l.endpoints {
		s := e.stats()
		s.Name, s.Subject, s.QueueGroup = e.name, l.info.Endpoints[i].Subject, QueueGroup
		stats.Endpoints = append(stats.Endpoints, &s)
	}
	return stats
}

func (e *endpoint) stats() micro.EndpointStats {
	dropped, err := e.sub.Dropped()
	if err != nil {
		dropped = 0 // no longer subscribed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := micro.EndpointStats{NumRequests: e.answers, NumErrors: e.errors, LastError: e.lastError, ProcessingTime: e.took}
	if e.answers > 0 {
		s.AverageProcessingTime = e.took / time.Duration(e.answers)
	}
	// These messages were dropped for lack of room, and their producers got no answer.
	s.Data = json.RawMessage(fmt.Sprintf(`{"dropped":%d}`, dropped))
	return s
}

// answered counts a job that was answered. refusal is nil if the job was accepted.
func (e *endpoint) answered(took time.Duration, refusal *Refusal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers++
	e.took += took
	if refusal != nil {
		e.errors++
		e.lastError = fmt.Sprintf("%d:%s", refusal.Code.Status(), refusal.Description)
	}
}
