package ingest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/ingest/client"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

// The headers of the wire contract.
const (
	HeaderMsgID      = client.HeaderMsgID
	HeaderJobID      = client.HeaderJobID
	HeaderAPI        = client.HeaderAPI
	HeaderKey        = client.HeaderKey
	HeaderMethod     = client.HeaderMethod
	HeaderPath       = client.HeaderPath
	HeaderQuery      = client.HeaderQuery
	HeaderForward    = client.HeaderForward
	HeaderDeadline   = client.HeaderDeadline
	HeaderNotBefore  = client.HeaderNotBefore
	HeaderPriority   = client.HeaderPriority
	HeaderCost       = client.HeaderCost
	HeaderReplyTo    = client.HeaderReplyTo
	HeaderThrottled  = client.HeaderThrottled
	HeaderRedrives   = "Weir-Redrives"
	HeaderJobNats    = "Weir-Job-Nats-" // replaces Nats- at the beginning of a job's own header
	HeaderOverSoft   = "Weir-Over-Soft" // set by weir: accepted above a limit, within its soft part
	HeaderTrace      = client.HeaderTrace
	HeaderTraceState = client.HeaderTraceState
	HeaderBaggage    = client.HeaderBaggage
	HeaderError      = client.HeaderError
	HeaderErrorCode  = client.HeaderErrorCode

	headerExpectedStream = "Nats-Expected-Stream"
	headerContentType    = "Content-Type"
)

// MaxIDBytes bounds a job's id, which is also sent to apis as the idempotency key.
const MaxIDBytes = 255

// Job is one unit of work: a request to an api, and what its producer asked for. A parsed Job is read-only.
type Job struct {
	API string
	Key string
	// ID names the job, also after redrives. DedupeID names this submission of it: each redrive has its own.
	ID, DedupeID string

	Method, Path, Query string
	Forward             []HeaderField // for the api
	Body                []byte

	Deadline  time.Time // zero: none
	NotBefore time.Time // no call before this time; zero, or in the past: at once
	Priority  Priority  // Normal when absent
	Cost      int64     // from Weir-Cost, 1 when absent
	ReplyTo   string
	Retries   bool  // its producer submits it again if it is throttled
	Trace     Trace // zero if the job has no valid trace context
	Redrives  int
	OverSoft  bool // an admission limit accepted the job only within its soft part

	// Header is the job's own header as the queue stores it: Nats- names renamed, Weir-Job-Id added.
	Header nats.Header
}

// KeySource says where an api's jobs name their key.
type KeySource struct {
	Header  string // a header's name
	Pointer string // a JSON pointer (RFC 6901) into the body; both empty: the key is in the subject
}

// Rule is what the configuration requires of the jobs of one api.
type Rule struct {
	API            string
	Methods        []string // at least one; the first is the default
	ForwardHeaders []string
	MaxBody        int64 // bytes
	Key            KeySource
	Costs          []CostBound   // bounds of the limits; checked when a job comes in
	ReplyTo        ReplySubjects // the same for all apis; checked when a job comes in
	Packed         *Packed       // nil: each job is called alone; checked when a job comes in
}

// Message is a job as a producer sent it, or as the queue stored it.
type Message struct {
	Key    string // from the subject; "" if it names none
	Header nats.Header
	Body   []byte
	// Oversize is the size in bytes of a body that was too large to read, or -1 if the size is unknown. 0 means that
	// the body was read.
	Oversize int64
	// Redrive says that the job arrived on a redrive's subject. Only then does the intake believe headers that only
	// weir may write.
	Redrive bool
	// HTTP says that the producer posted the job over HTTP and knows no subjects.
	HTTP bool
	// Batched says that the job came in a batch. It must bring an id, so that the batch can be sent again.
	Batched bool
	// NewID is the id for a job that brings none. If empty, Parse makes one.
	NewID string
}

// NewID returns a new id for a job that has none.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// size returns the size of a body that is too large, as text.
func (m Message) size(rule *Rule) string {
	switch {
	case m.Oversize < 0:
		return "more than " + strconv.FormatInt(rule.MaxBody, 10)
	case m.Oversize > 0:
		return strconv.FormatInt(m.Oversize, 10)
	}
	return strconv.Itoa(len(m.Body))
}

// address tells the producer where to send jobs of an api.
func (m Message) address(api string, keyed bool) string {
	key, at := "", "publish to weir.jobs."+api
	if m.HTTP {
		at = "post to /v1/jobs/" + api
	}
	switch {
	case keyed && m.HTTP:
		key = "/{key}"
	case keyed:
		key = ".<key>"
	}
	return at + key
}

// Parse reads a job that arrived at the time now, by its api's rule. With a refusal it still returns everything it
// could read, and always an id, because the letter must name the job. Parse drops a producer's claim to be a redrive.
func Parse(m Message, rule *Rule, now time.Time) (*Job, *Refusal) {
	j := &Job{API: rule.API, Method: rule.Methods[0], Cost: 1, Body: m.Body}
	tooLarge := int64(len(m.Body)) > rule.MaxBody || m.Oversize != 0
	refusal := j.readHeader(m.Header, rule, now, fromProducer)
	if forged := checkClaims(m); forged != nil {
		j.ID, j.DedupeID, j.Redrives = "", "", 0
		refusal = forged
	}
	if j.ReplyTo != "" {
		if err := rule.ReplyTo.check(j.ReplyTo); err != nil {
			j.ReplyTo = "" // the refusal must not be sent there either
			if refusal == nil {
				refusal = refuse(Invalid, "header %s: %v", HeaderReplyTo, err)
			}
		}
	}
	if err := checkHeaders(m.Header); err != nil {
		refusal = refuse(Invalid, "%v", err)
	}
	if tooLarge {
		refusal = refuse(TooLarge, "the body has %s bytes, api %s takes at most %d", m.size(rule), rule.API, rule.MaxBody)
	}
	if !tooLarge || rule.Key.Pointer == "" {
		if noKey := j.readKey(m, rule); refusal == nil {
			refusal = noKey
		}
	}
	if refusal == nil && !j.Deadline.IsZero() && !j.Deadline.After(now) {
		refusal = refuse(Invalid, "header %s: the deadline has passed", HeaderDeadline)
	}
	if refusal == nil {
		refusal = j.checkNotBefore(now)
	}
	if j.ID == "" && m.Batched && refusal == nil {
		refusal = refuse(Invalid, "header %s: each job of a batch needs an id", HeaderMsgID)
	}
	if j.ID == "" {
		j.ID = m.NewID
	}
	if j.ID == "" {
		j.ID = NewID()
	}
	if j.DedupeID == "" {
		j.DedupeID = j.ID
	}
	j.Header = storedHeader(m.Header, m.Body, j.ID)
	if refusal == nil {
		refusal = j.checkCosts(rule)
	}
	if refusal == nil {
		refusal = j.checkPacked(rule)
	}
	return j, refusal
}

// Message returns the message that the queue stores under subject. Its message id contains the key, so the same id
// under two keys names two jobs, for any number of partitions.
func (j *Job) Message(subject string) *nats.Msg {
	header := make(nats.Header, len(j.Header)+2)
	for name, values := range j.Header {
		if !strings.EqualFold(name, HeaderOverSoft) {
			header[name] = values
		}
	}
	if j.OverSoft {
		header[HeaderOverSoft] = []string{"true"}
	}
	header[HeaderMsgID] = []string{StoredID(j.Key, j.DedupeID)}
	return &nats.Msg{Subject: subject, Header: header, Data: j.Body}
}

// StoredID returns the message id under which the queue stores a submission.
func StoredID(key, dedupeID string) string { return Token(key) + "/" + dedupeID }

// Restore reads a job from the queue's message, which the stream stored at storedAt. It refuses the job if the rule's
// methods or forward_headers have changed and now forbid it. It ignores unknown headers of weir, which an intake of a
// later version has accepted. It does not check MaxBody and the key again, so a job that was accepted under a larger
// bound is called.
func Restore(m Message, rule *Rule, storedAt time.Time) (*Job, *Refusal) {
	j := &Job{API: rule.API, Key: m.Key, Method: rule.Methods[0], Cost: 1, Body: m.Body, Header: m.Header}
	stored := m.Header.Get(HeaderMsgID)
	for name := range m.Header {
		if strings.HasPrefix(name, "Nats-") {
			delete(m.Header, name) // weir's own, for the stream: the intake renamed those of the job
		}
	}
	refusal := j.readHeader(m.Header, rule, storedAt, fromQueue)
	j.DedupeID = strings.TrimPrefix(stored, StoredID(m.Key, ""))
	return j, refusal
}

func (j *Job) readKey(m Message, rule *Rule) *Refusal {
	var err error
	switch {
	case rule.Key != (KeySource{}):
		j.Key, err = rule.Key.Read(m.Header, m.Body)
	case m.Key == "":
		err = errors.New(m.address(rule.API, true))
	default:
		j.Key = m.Key
	}
	if err == nil && m.Key != "" && rule.Key != (KeySource{}) {
		err = fmt.Errorf("api %s takes the key from %s: %s", rule.API, rule.Key, m.address(rule.API, false))
	}
	if err == nil {
		err = CheckKey(j.Key)
	}
	if err != nil {
		j.Key = ""
		return refuse(Invalid, "key: %v", err)
	}
	return nil
}

// Read returns the key from a job's header or body. It fails if the job has no key there. It must not be called if the
// key is in the subject.
func (s KeySource) Read(h nats.Header, body []byte) (string, error) {
	if s.Header != "" {
		key, found, err := headerValue(h, s.Header)
		if err == nil && !found {
			err = fmt.Errorf("the job has no header %s", s.Header)
		}
		return key, err
	}
	return pointedString(body, s.Pointer)
}

func (s KeySource) String() string {
	switch {
	case s.Header != "":
		return "header " + s.Header
	case s.Pointer != "":
		return "json pointer " + s.Pointer
	}
	return "subject"
}
