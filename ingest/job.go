package ingest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

// The headers of the wire contract.
const (
	HeaderMsgID      = "Nats-Msg-Id"
	HeaderJobID      = "Weir-Job-Id"
	HeaderAPI        = "Weir-Api"
	HeaderKey        = "Weir-Key"
	HeaderMethod     = "Weir-Method"
	HeaderPath       = "Weir-Path"
	HeaderQuery      = "Weir-Query"
	HeaderForward    = "Weir-Header-"
	HeaderDeadline   = "Weir-Deadline"
	HeaderCost       = "Weir-Cost"
	HeaderReplyTo    = "Weir-Reply-To"
	HeaderRedrives   = "Weir-Redrives"
	HeaderJobNats    = "Weir-Job-Nats-" // what a job's own Nats- headers are renamed to
	HeaderTrace      = "traceparent"
	HeaderTraceState = "tracestate"

	headerExpectedStream = "Nats-Expected-Stream"
	headerContentType    = "Content-Type"
)

// MaxIDBytes bounds a job's id, which is also sent to apis as the idempotency key.
const MaxIDBytes = 255

// Job is one unit of work: a request to be made to an api, and what the producer asked for about it.
// A Job is read-only after it was parsed.
type Job struct {
	API string
	Key string
	// ID names the job for good; DedupeID names this submission of it (a redrive has its own).
	ID, DedupeID string

	Method, Path, Query string
	Forward             []HeaderField // for the api
	Body                []byte

	Deadline time.Time // zero: none
	Cost     int64     // from Weir-Cost, 1 when absent
	ReplyTo  string
	Redrives int

	// Header is the job's own header as it is stored: Nats- names renamed, Weir-Job-Id added.
	Header nats.Header
}

// HeaderField is one header for the api.
type HeaderField struct{ Name, Value string }

// KeySource says where an api's jobs carry their key.
type KeySource struct {
	Header  string // a header's name
	Pointer string // a JSON pointer (RFC 6901) into the body; both empty: the subject
}

// Rule is what an api asks of its jobs.
type Rule struct {
	API            string
	Methods        []string // at least one; the first is the default
	ForwardHeaders []string
	MaxBody        int64 // bytes
	Key            KeySource
	MaxCost        int64 // 0: any
}

// Message is a job as it came from a producer or out of the queue.
type Message struct {
	Key    string // from the subject, "" when it names none
	Header nats.Header
	Body   []byte
}

// Parse reads a job that a producer sent at the time now under its api's rule. With a refusal the job holds what could
// be read.
func Parse(m Message, rule *Rule, now time.Time) (*Job, *Refusal) {
	j := &Job{API: rule.API, Method: rule.Methods[0], Cost: 1, Body: m.Body}
	if int64(len(m.Body)) > rule.MaxBody {
		j.salvage(m.Header)
		_ = j.readKey(Message{Key: m.Key, Header: m.Header}, rule) // not from a body of any size
		return j, refuse(TooLarge, "the body has %d bytes, api %s takes at most %d", len(m.Body), rule.API, rule.MaxBody)
	}
	if refusal := j.readHeader(m.Header, rule, now); refusal != nil {
		j.salvage(m.Header)
		_ = j.readKey(m, rule) // it is refused already
		return j, refusal
	}
	if refusal := j.readKey(m, rule); refusal != nil {
		return j, refusal
	}
	if !j.Deadline.IsZero() && !j.Deadline.After(now) {
		return j, refuse(Invalid, "header %s: the deadline %s has passed", HeaderDeadline, j.Deadline.UTC().Format(time.RFC3339))
	}
	if j.ID == "" {
		j.ID = uuid.Must(uuid.NewV7()).String()
	}
	if j.DedupeID == "" {
		j.DedupeID = j.ID
	}
	j.Header = storedHeader(m.Header, j.ID)
	return j, nil
}

// Message is the job as the queue stores it under subject. Its message id holds the key, so that the same id under
// two keys is two jobs, in one partition as in two.
func (j *Job) Message(subject string) *nats.Msg {
	header := make(nats.Header, len(j.Header)+1)
	for name, values := range j.Header {
		header[name] = values
	}
	header[HeaderMsgID] = []string{StoredID(j.Key, j.DedupeID)}
	return &nats.Msg{Subject: subject, Header: header, Data: j.Body}
}

// StoredID is the message id under which the queue stores a submission.
func StoredID(key, dedupeID string) string { return Token(key) + "/" + dedupeID }

// Restore reads a job back from the queue. storedAt is the message's time stamp. A refusal means that the api's rule
// has changed since and forbids the job now.
func Restore(m Message, rule *Rule, storedAt time.Time) (*Job, *Refusal) {
	j := &Job{API: rule.API, Key: m.Key, Method: rule.Methods[0], Cost: 1, Body: m.Body, Header: m.Header}
	stored := m.Header.Get(HeaderMsgID)
	for name := range m.Header {
		if strings.HasPrefix(name, "Nats-") {
			delete(m.Header, name) // weir's own, for the stream: the job's are among the renamed
		}
	}
	refusal := j.readHeader(m.Header, rule, storedAt)
	j.DedupeID = strings.TrimPrefix(stored, StoredID(m.Key, ""))
	return j, refusal
}

// salvage reads of a refused job what its letter is found by and who is to be told, where these are right.
func (j *Job) salvage(h nats.Header) {
	j.ID, j.DedupeID, j.ReplyTo = "", "", ""
	for _, name := range []string{HeaderMsgID, HeaderJobID} {
		if value, err := headerValue(h, name); err == nil {
			if id, err := checkID(value); err == nil {
				j.ID = id
			}
		}
	}
	if value, err := headerValue(h, HeaderReplyTo); err == nil && checkReplyTo(value) == nil {
		j.ReplyTo = value
	}
}

func (j *Job) readHeader(h nats.Header, rule *Rule, now time.Time) *Refusal {
	var msgID, jobID string
	for name, values := range h {
		if len(values) == 0 {
			continue
		}
		value, lower := values[0], strings.ToLower(name)
		if refusal := checkSingle(lower, name, values); refusal != nil {
			return refusal
		}
		var err error
		switch lower {
		case "nats-msg-id":
			msgID, err = checkID(value)
		case "weir-job-id":
			jobID, err = checkID(value)
		case "weir-method":
			j.Method, err = checkMethod(value, rule.Methods)
		case "weir-path":
			j.Path, err = value, checkPath(value)
		case "weir-query":
			j.Query, err = value, checkQuery(value)
		case "weir-deadline":
			j.Deadline, err = parseDeadline(value, now)
		case "weir-cost":
			j.Cost, err = parseCost(value, rule.MaxCost)
		case "weir-reply-to":
			j.ReplyTo, err = value, checkReplyTo(value)
		case "weir-redrives":
			j.Redrives, err = strconv.Atoi(value)
		case "content-type":
			if forwards(rule, headerContentType) {
				j.Forward, err = append(j.Forward, HeaderField{headerContentType, value}), checkHeaderValue(value)
			}
		default:
			err = j.readOther(name, lower, values, rule)
		}
		if err != nil {
			return refuse(Invalid, "header %s: %v", name, err)
		}
	}
	j.ID, j.DedupeID = firstOf(jobID, msgID), firstOf(msgID, jobID)
	return nil
}

// readOther takes the headers that are known by their prefix.
func (j *Job) readOther(name, lower string, values []string, rule *Rule) error {
	if forwarded, ok := strings.CutPrefix(lower, "weir-header-"); ok {
		forwarded = name[len(name)-len(forwarded):]
		if !forwards(rule, forwarded) {
			return fmt.Errorf("api %s does not forward %s (its forward_headers do not name it)", rule.API, forwarded)
		}
		for _, v := range values {
			if err := checkHeaderValue(v); err != nil {
				return err
			}
			j.Forward = append(j.Forward, HeaderField{http.CanonicalHeaderKey(forwarded), v})
		}
		return nil
	}
	if strings.HasPrefix(lower, "weir-") && !carriedByLetters(lower) {
		return fmt.Errorf("no such header; weir knows %s %s %s %s<Name> %s %s %s %s", HeaderMethod, HeaderPath,
			HeaderQuery, HeaderForward, HeaderDeadline, HeaderCost, HeaderReplyTo, HeaderJobID)
	}
	for _, prefix := range unhonoured {
		if strings.HasPrefix(lower, prefix) {
			return fmt.Errorf("weir cannot honour this JetStream header: leave it out")
		}
	}
	return nil
}

// unhonoured are JetStream's headers whose promise the queue behind weir does not keep. Nats-Expected-Stream is not
// among them: it is checked.
var unhonoured = []string{
	"nats-expected-last-", "nats-rollup", "nats-ttl", "nats-batch-", "nats-schedule", "nats-incr", "nats-required-api-level",
}

// carriedByLetters are the headers that a letter or a result has and that do no harm when somebody publishes it again.
func carriedByLetters(lower string) bool {
	return lower == "weir-api" || lower == "weir-key" ||
		strings.HasPrefix(lower, "weir-dead-") || strings.HasPrefix(lower, "weir-job-nats-")
}

func (j *Job) readKey(m Message, rule *Rule) *Refusal {
	var err error
	switch {
	case rule.Key.Header != "":
		j.Key, err = headerValue(m.Header, rule.Key.Header)
	case rule.Key.Pointer != "":
		j.Key, err = pointedString(m.Body, rule.Key.Pointer)
	case m.Key == "":
		err = fmt.Errorf("publish to weir.jobs.%s.<key>", rule.API)
	default:
		j.Key = m.Key
	}
	if err == nil && m.Key != "" && (rule.Key.Header != "" || rule.Key.Pointer != "") {
		err = fmt.Errorf("api %s takes the key from %s: publish to weir.jobs.%s", rule.API, rule.Key, rule.API)
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

func (s KeySource) String() string {
	switch {
	case s.Header != "":
		return "header " + s.Header
	case s.Pointer != "":
		return "json pointer " + s.Pointer
	}
	return "subject"
}

// storedHeader is the job's header as the queue keeps it: the server would obey what begins with Nats-.
func storedHeader(h nats.Header, id string) nats.Header {
	stored := make(nats.Header, len(h)+2)
	for name, values := range h {
		if len(name) > 5 && strings.EqualFold(name[:5], "Nats-") {
			name = HeaderJobNats + name[5:]
		}
		stored[name] = values
	}
	stored[HeaderJobID] = []string{id}
	return stored
}

func forwards(rule *Rule, name string) bool {
	for _, allowed := range rule.ForwardHeaders {
		if strings.EqualFold(allowed, name) {
			return true
		}
	}
	return false
}

// checkSingle refuses two values where only one has a meaning; a header for the api may repeat.
func checkSingle(lower, name string, values []string) *Refusal {
	if len(values) > 1 && !strings.HasPrefix(lower, "weir-header-") &&
		(strings.HasPrefix(lower, "weir-") || strings.HasPrefix(lower, "nats-") || lower == "content-type") {
		return refuse(Invalid, "header %s stands %d times", name, len(values))
	}
	return nil
}

func headerValue(h nats.Header, name string) (string, error) {
	for n, values := range h {
		if strings.EqualFold(n, name) && len(values) > 0 {
			if len(values) > 1 {
				return "", fmt.Errorf("header %s stands %d times", name, len(values))
			}
			return values[0], nil
		}
	}
	return "", fmt.Errorf("the job has no header %s", name)
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
