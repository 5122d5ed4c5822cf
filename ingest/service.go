package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// Names of the intake. QueueGroup makes NATS share the jobs among the replicas.
const (
	SubjectPrefix = client.SubjectPrefix
	QueueGroup    = "weir-ingest"
	ServiceName   = "weir"
)

// Bounds of the messages that wait for the handler. Beyond them nats.go drops new messages, and their producers time
// out and try again.
const (
	maxWaitingMsgs  = 65536
	maxWaitingBytes = 256 << 20
	redrivesShare   = 8 // redrives may take one part in this many
)

// Queue stores the jobs of one api.
type Queue interface {
	// Put stores a job and calls done once: with a receipt after the stream has stored the job, or with a refusal. Put
	// must not block. It may call done before it returns. done must not block.
	Put(j *Job, done func(Receipt, *Refusal))
	// Stream returns the name of the stream that stores jobs of this key.
	Stream(key string) string
}

// API is what the service needs to know of one configured api. It is immutable.
type API struct {
	Rule  *Rule
	Queue Queue
}

// Refused is a refused job that is to become a letter.
type Refused struct {
	API, Key, JobID string // as far as they could be read
	Header          nats.Header
	Body            []byte
	BodyLeftOut     bool // it was too large to keep
	ReplyTo         string
	Redrives        int
	Refusal         *Refusal
}

// Options configure a Service. All fields are required except MaxWaiting, Again, Answered and Registerer.
type Options struct {
	Conn    *nats.Conn
	Version string // semantic version
	// APIs returns the apis of the current configuration. The service calls it for every job, so it must be cheap.
	APIs func() map[string]*API
	// Bury stores a letter of a refused job and then its event. It then calls done once, with the letter's sequence or
	// an error. It must not block.
	Bury func(r Refused, done func(letterSeq uint64, err error))
	// MaxWaiting bounds the bytes of the jobs that wait for the handler. Zero means maxWaitingBytes, which is also the
	// maximum.
	MaxWaiting int64
	// Optional. Again is called for each job that was already known and names a Weir-Reply-To, after its producer has
	// its answer. It must not block.
	Again func(job *Job, receipt Receipt)
	// Optional. Answered is called for each job that was answered. It must not block.
	Answered   func(*Answered)
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Answered is a job with the intake's answer.
type Answered struct {
	Job     *Job      // as far as it could be read
	API     string    // NoToken if the job's api is not configured
	Arrived time.Time // when the handler got the job
	Stream  string    // the stream that stores the jobs of its key, if the job has a key
	Answer
}

// Service is the intake. It reads jobs, has them stored, and answers when the stream has answered. It reads on while
// earlier jobs wait for their answers.
type Service struct {
	opts       Options
	log        *slog.Logger
	listing    *listing
	unanswered unanswered // jobs without an answer yet
	metrics    *metrics
	throttled  tally // throttled jobs by api, for Throttled
}

// Start starts the intake.
func Start(o Options) (*Service, error) {
	if o.Conn == nil || o.APIs == nil || o.Bury == nil || o.Log == nil {
		panic("ingest: Start without Conn, APIs, Bury or Log")
	}
	s := &Service{opts: o, log: o.Log.With("component", "ingest"), metrics: newMetrics(o.Registerer)}
	for api := range o.APIs() {
		s.metrics.of(api)
	}
	waiting := maxWaitingBytes
	if o.MaxWaiting > 0 {
		waiting = int(min(o.MaxWaiting, maxWaitingBytes))
	}
	redrives := waiting / redrivesShare
	s.listing = newListing(o.Conn, o.Version)
	err := errors.Join(
		s.listing.add("jobs", SubjectPrefix+">", s.handleJob, maxWaitingMsgs, waiting-redrives),
		s.listing.add("redrives", RedrivePrefix+">", s.handleRedrive, maxWaitingMsgs, redrives),
		s.listing.answerQuestions(),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the intake: %w", err), s.listing.stop())
	}
	return s, nil
}

// Stop stops accepting jobs. It returns when every job that was taken has its answer, or ctx ends.
func (s *Service) Stop(ctx context.Context) error {
	if err := s.listing.stop(); err != nil {
		return fmt.Errorf("stop the intake: %w", err)
	}
	select {
	case <-s.unanswered.close():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the intake: some jobs are not answered yet: %w", context.Cause(ctx))
	}
}

// handleJob handles a producer's job or batch of jobs.
func (s *Service) handleJob(from *endpoint, msg *nats.Msg) {
	address := strings.TrimPrefix(msg.Subject, SubjectPrefix)
	if len(HeaderValues(msg.Header, client.HeaderBatch)) > 0 {
		s.handleBatch(from, msg, address)
		return
	}
	s.handle(from, msg, address, false)
}

// handleRedrive handles a redriven job.
func (s *Service) handleRedrive(from *endpoint, msg *nats.Msg) {
	s.handle(from, msg, strings.TrimPrefix(msg.Subject, RedrivePrefix), true)
}

// handle handles a job that came over NATS. address is <api>.<key>.
func (s *Service) handle(from *endpoint, req *nats.Msg, address string, redrive bool) {
	arrived := time.Now()
	name, tokens, _ := strings.Cut(address, ".")
	in := &submission{service: s, arrived: arrived, apiName: name, header: req.Header, fastBatch: asksFastBatch(req.Reply, req.Header)}
	in.hear = func(a Answer) {
		from.answered(time.Since(arrived), a.Refusal)
		in.send(req.Reply, a)
	}
	in.take(Message{Key: KeyFromSubject(tokens), Header: in.header, Body: req.Data, Redrive: redrive})
}

// take parses a job and stores it, or refuses it.
func (in *submission) take(msg Message) {
	s, name, now := in.service, in.apiName, in.arrived
	delete(in.header, requestInfo)
	apis := s.opts.APIs()
	api, ok := apis[name]
	if in.metrics = s.metrics.of(NoToken); ok {
		in.metrics = s.metrics.of(name)
	}
	if !s.unanswered.enter() {
		in.metrics.refused[Unavailable].Inc()
		in.hear(denial(refuse(Unavailable, "weir is stopping: try again"), "", "", "", 0))
		return
	}
	if !ok {
		rule := anyRule
		for _, other := range apis {
			rule.ReplyTo = other.Rule.ReplyTo // the same for all
			break
		}
		job, _ := Parse(msg, &rule, now)
		in.read(job)
		in.refuse(msg, refuse(UnknownAPI, "no api %q is configured", clip(name)))
		return
	}
	job, refusal := Parse(msg, api.Rule, now)
	in.read(job)
	if in.wrong != nil {
		refusal = in.wrong
	}
	if job.Key != "" {
		in.stream = api.Queue.Stream(job.Key)
	}
	if refusal == nil {
		refusal = in.checkPromises()
	}
	if refusal != nil {
		in.refuse(msg, refusal)
		return
	}
	api.Queue.Put(job, func(receipt Receipt, refusal *Refusal) {
		if refusal != nil {
			in.refuse(msg, refusal)
			return
		}
		if !receipt.Duplicate {
			in.metrics.accepted.Inc()
		}
		if receipt.OverSoft {
			in.metrics.overSoft.Inc()
		}
		in.answer(Answer{Data: receipt.Answer(time.Now()), Receipt: receipt})
		if receipt.Duplicate && job.ReplyTo != "" && !msg.Redrive && s.opts.Again != nil {
			s.opts.Again(job, receipt)
		}
	})
}

// requestInfo is the header in which the server names the account that a job came from. It is not part of the job.
const requestInfo = "Nats-Request-Info"

// asksFastBatch reports whether a publish is part of a JetStream fast batch. For a publish from another account, only
// the server's header shows this.
func asksFastBatch(reply string, header nats.Header) bool {
	if info := header.Get(requestInfo); strings.Contains(info, fastBatchReply) { // each job from another account has one
		var from struct {
			Reply string `json:"reply"`
		}
		if json.Unmarshal([]byte(info), &from) == nil && from.Reply != "" {
			reply = from.Reply
		}
	}
	return strings.HasSuffix(reply, fastBatchReply)
}

// fastBatchReply ends the reply subject of a fast batch.
const fastBatchReply = ".$FI"

// ErrTold marks an error of Bury that is already logged, so that the intake does not log it for each job.
var ErrTold = errors.New("jobs are refused without a letter")

// anyRule is the rule for jobs of apis that are not configured: it reads all that it can.
var anyRule = Rule{Methods: []string{"POST"}, MaxBody: math.MaxInt64}

// submission is one job from its arrival to its answer.
type submission struct {
	service                              *Service
	arrived                              time.Time
	hear                                 func(Answer) // called once; must not block
	apiName, key, jobID, stream, replyTo string
	header                               nats.Header
	job                                  *Job // as far as it could be read
	metrics                              *apiMetrics
	redrives                             int
	fastBatch                            bool     // a JetStream fast batch, whose publisher expects other answers
	wrong                                *Refusal // why the job's message cannot be read; nil if it can
}

// read stores what Parse has read of the job.
func (in *submission) read(job *Job) {
	in.job, in.key, in.jobID, in.replyTo, in.redrives = job, job.Key, job.ID, job.ReplyTo, job.Redrives
}

var errFastBatch = errors.New("weir takes single publishes and its own batches, not JetStream's fast batches")

// checkPromises refuses a job that asks for JetStream features that weir does not have.
func (in *submission) checkPromises() *Refusal {
	if in.fastBatch {
		return refuse(Invalid, "%v", errFastBatch)
	}
	if expected := HeaderValues(in.header, headerExpectedStream); len(expected) == 1 && expected[0] != in.stream {
		return refuse(Invalid, "header %s: it names another stream than the job would go to, %s", headerExpectedStream, in.stream)
	}
	return nil
}

// refuse stores a letter if there must be one, and then answers the producer. A throttled job with Retries gets no
// letter: a letter ends a job, and the producer will submit this one again.
func (in *submission) refuse(msg Message, refusal *Refusal) {
	switch refusal.Code {
	case Unavailable:
		in.answer(denial(refusal, in.stream, in.jobID, in.key, 0))
		return
	case Unsure:
		in.log().Error("a job is not answered: send it again under the same id", "err", refusal.Description)
		unsure := *refusal
		unsure.Job = in.jobID
		in.answer(Answer{Refusal: &unsure})
		return
	}
	if refusal.Code == Throttled && in.job.Retries && !msg.Redrive {
		in.countThrottled()
		in.answer(denial(refusal, in.stream, in.jobID, in.key, 0))
		return
	}
	body, leftOut := msg.Body, refusal.Code == TooLarge || msg.Oversize != 0
	if leftOut {
		body = nil
	}
	in.service.opts.Bury(Refused{
		API: in.apiName, Key: in.key, JobID: in.jobID, Header: in.header, Body: body, BodyLeftOut: leftOut, ReplyTo: in.replyTo,
		Redrives: in.redrives, Refusal: refusal,
	}, func(letterSeq uint64, err error) {
		if err != nil {
			if !errors.Is(err, ErrTold) {
				in.log().Error("a refused job could not be kept as a dead letter; its producer is told to try again", "err", err)
			}
			refusal = refuse(Unavailable, "refused (%s), and its dead letter or event could not be stored: try again", refusal.Description)
			in.answer(denial(refusal, in.stream, in.jobID, in.key, 0))
			return
		}
		if refusal.Code == Throttled {
			in.countThrottled()
		}
		in.answer(denial(refusal, in.stream, in.jobID, in.key, letterSeq))
	})
}

func (in *submission) countThrottled() {
	in.metrics.throttled.Inc()
	in.service.throttled.add(in.apiName)
}

// log returns the logger for lines about the job.
func (in *submission) log() *slog.Logger {
	log := in.service.log.With("api", in.apiName, "job_id", in.jobID)
	if in.job == nil { // the service is stopping, so the job was not read
		return log
	}
	return in.job.Trace.Log(log)
}

// answer sends the answer to a job and counts it. take must have entered the job in unanswered.
func (in *submission) answer(a Answer) {
	defer in.service.unanswered.leave()
	in.hear(a)
	in.metrics.count(&a, in.arrived, in.job.Trace)
	if in.service.opts.Answered != nil {
		in.service.opts.Answered(&Answered{Job: in.job, API: in.metrics.label, Arrived: in.arrived, Stream: in.stream, Answer: a})
	}
}

// send publishes an answer to the producer's reply subject.
func (in *submission) send(reply string, a Answer) {
	if a.Data == nil {
		return // Unsure
	}
	msg := &nats.Msg{Data: a.Data}
	if a.Refusal != nil {
		msg.Header = a.Refusal.Headers()
	}
	in.service.reply(reply, msg, in.log)
}

// reply publishes an answer to a producer's reply subject, if there is one and weir may publish there for a producer.
func (s *Service) reply(subject string, msg *nats.Msg, log func() *slog.Logger) {
	if subject == "" || notTheirs(subject) {
		return
	}
	msg.Subject = subject
	if err := s.opts.Conn.PublishMsg(msg); err != nil {
		log().Warn("an answer could not be sent", "err", err)
	}
}

// clip shortens a text from outside so that it can be quoted.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
