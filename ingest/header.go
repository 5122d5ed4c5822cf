package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/net/http/httpguts"

	"weir/ingest/client"
)

// Bounds of a job's own headers, in bytes. JetStream stores at most 64 KiB of headers, and a name grows when weir
// renames it.
const (
	maxHeaderBytes = 32 << 10
	maxKeptBytes   = 60 << 10
)

// source says where headers come from. A producer must not send a Weir- header that weir does not know. A job from the
// queue may carry one, because an intake of a later version accepted it: it is ignored.
type source int

const (
	fromProducer source = iota
	fromQueue
)

// readHeader reads every header that it can, even after it refuses one. It returns the refusal of the header whose name
// sorts first, so the same job is always refused for the same reason.
func (j *Job) readHeader(h nats.Header, rule *Rule, now time.Time, from source) *Refusal {
	var first *Refusal
	var msgID string
	var some [usualHeaders]string
	for _, name := range sortedNames(h, some[:0]) {
		if len(h[name]) == 0 {
			continue
		}
		err := checkSingle(name, h[name])
		if err == nil {
			err = j.readOne(name, h[name], rule, now, &msgID, from)
		}
		if err != nil && first == nil {
			first = refuse(Invalid, "header %s: %v", clip(name), err)
		}
	}
	j.Trace = j.Trace.checked()
	redrive := j.isRedrive(msgID)
	if len(msgID) > MaxIDBytes && !redrive {
		if first == nil {
			first = refuse(Invalid, "header %s: %v", HeaderMsgID, checkID(msgID))
		}
		msgID = ""
	}
	j.ID, j.DedupeID = firstOf(j.ID, msgID), firstOf(msgID, j.ID)
	if redrive {
		j.DedupeID = redriveMark + msgID
	}
	return first
}

// readOne reads one header into the job. It leaves a field unset if its header is refused.
func (j *Job) readOne(name string, values []string, rule *Rule, now time.Time, msgID *string, from source) (err error) {
	value := values[0]
	switch lower(name) {
	case "nats-msg-id":
		err = set(msgID, value, checkMsgID(value))
	case "weir-job-id":
		err = set(&j.ID, value, checkID(value))
	case "weir-method":
		err = set(&j.Method, value, checkMethod(value, rule.Methods))
	case "weir-path":
		err = set(&j.Path, value, checkPath(value))
	case "weir-query":
		err = set(&j.Query, value, checkQuery(value))
	case "weir-reply-to":
		err = set(&j.ReplyTo, value, checkReplyTo(value))
	case "weir-on-throttled":
		err = set(&j.Retries, true, checkThrottled(value))
	case "weir-deadline":
		at, bad := ParseDeadline(value, now)
		err = set(&j.Deadline, at, bad)
	case "weir-not-before":
		at, bad := ParseNotBefore(value, now)
		err = set(&j.NotBefore, at, bad)
	case "weir-priority":
		p, bad := client.ParsePriority(value)
		err = set(&j.Priority, p, bad)
	case "weir-cost":
		cost, bad := parseCost(value)
		err = set(&j.Cost, cost, bad)
	case "weir-redrives":
		n, bad := strconv.ParseUint(value, 10, 31)
		if bad != nil {
			bad = errors.New("not a whole number")
		}
		err = set(&j.Redrives, int(n), bad)
	case "content-type":
		if forwards(rule, headerContentType) {
			err = j.forward(headerContentType, values)
		}
	case HeaderTrace, HeaderTraceState, HeaderBaggage:
		j.Trace.take(name, values)
		if forwards(rule, name) && !j.forwardsTrace(name) {
			err = j.forward(http.CanonicalHeaderKey(name), []string{strings.Join(values, ",")})
		}
	default:
		err = j.readOther(name, values, rule, from)
	}
	return err
}

// forwardsTrace reports whether the job already forwards this trace header: as Weir-Header-<name>, or in another case.
func (j *Job) forwardsTrace(name string) bool {
	return slices.ContainsFunc(j.Forward, func(f HeaderField) bool { return strings.EqualFold(f.Name, name) })
}

// set stores value in field unless err is set. It returns err.
func set[T any](field *T, value T, err error) error {
	if err == nil {
		*field = value
	}
	return err
}

// readOther reads the headers that are known by their prefix.
func (j *Job) readOther(name string, values []string, rule *Rule, from source) error {
	lower := lower(name)
	if strings.HasPrefix(lower, "weir-header-") {
		forwarded := name[len(HeaderForward):]
		if !forwards(rule, forwarded) {
			return fmt.Errorf("api %s does not forward %s (its forward_headers do not name it)", rule.API, clip(forwarded))
		}
		if strings.EqualFold(forwarded, HeaderTrace) || strings.EqualFold(forwarded, HeaderTraceState) {
			j.Forward = slices.DeleteFunc(j.Forward, func(f HeaderField) bool { return strings.EqualFold(f.Name, forwarded) })
			values = values[:1]
		}
		return j.forward(http.CanonicalHeaderKey(forwarded), values)
	}
	if strings.HasPrefix(lower, "weir-") && !carriedByLetters(lower) && from == fromProducer {
		return fmt.Errorf("no such header; weir knows %s %s %s %s<Name> %s %s %s %s %s %s %s", HeaderMethod, HeaderPath,
			HeaderQuery, HeaderForward, HeaderDeadline, HeaderNotBefore, HeaderPriority, HeaderCost, HeaderReplyTo, HeaderThrottled, HeaderJobID)
	}
	if unhonoured(lower) {
		return errors.New("weir cannot honour this JetStream header: leave it out")
	}
	return nil
}

func (j *Job) forward(name string, values []string) error {
	for _, v := range values {
		if err := checkHeaderValue(v); err != nil {
			return err
		}
	}
	for _, v := range values {
		j.Forward = append(j.Forward, HeaderField{Name: name, Value: v})
	}
	return nil
}

// unhonoured reports whether a JetStream header asks for something that weir's queue does not do. Nats-Expected-Stream
// is not listed here: checkPromises checks it.
func unhonoured(lower string) bool {
	for _, prefix := range [...]string{
		"nats-expected-last-", "nats-rollup", "nats-ttl", "nats-batch-", "nats-schedule", "nats-incr", "nats-required-api-level",
	} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	return false
}

// carriedByLetters reports whether a producer may send this header of weir's because letters carry it: a producer that
// publishes a letter again sends it too, and it changes nothing. The headers of an api's answer are not among them.
func carriedByLetters(lower string) bool {
	return lower == "weir-api" || lower == "weir-key" || lower == "weir-over-soft" ||
		strings.HasPrefix(lower, "weir-dead-") || strings.HasPrefix(lower, "weir-job-nats-")
}

// checkHeaders refuses headers that HTTP cannot carry, two spellings of one name, and headers that are too large
// together.
func checkHeaders(h nats.Header) error {
	size := 0
	var spellings map[string]string
	if len(h) > 1 {
		spellings = make(map[string]string, len(h))
	}
	for name, values := range h {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("header %q: HTTP cannot carry this name", clip(name))
		}
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
		plain := meant(name)
		if spellings == nil || strings.HasPrefix(plain, "weir-header-") {
			continue // a header for the api may repeat
		}
		if other, twice := spellings[plain]; twice {
			return fmt.Errorf("headers %s and %s are the same one: send it once", clip(min(name, other)), clip(max(name, other)))
		}
		spellings[plain] = name
	}
	if size > maxHeaderBytes {
		return fmt.Errorf("the headers have %d bytes, at most %d are allowed", size, maxHeaderBytes)
	}
	return nil
}

// meant returns a header's name in lower case. It treats Weir-Header-Content-Type as Content-Type.
func meant(name string) string {
	lower := lower(name)
	if lower == "weir-header-content-type" {
		return "content-type"
	}
	return lower
}

// checkSingle refuses a header with several values, unless the header goes to the api.
func checkSingle(name string, values []string) error {
	plain := meant(name)
	if len(values) > 1 && !strings.HasPrefix(plain, "weir-header-") &&
		(strings.HasPrefix(plain, "weir-") || strings.HasPrefix(plain, "nats-") || plain == "content-type") {
		return fmt.Errorf("it stands %d times", len(values))
	}
	return nil
}

// usualHeaders is how many headers sortedNames sorts without an allocation.
const usualHeaders = 16

// sortedNames appends the names of h to names, which is empty, and returns them sorted.
func sortedNames(h nats.Header, names []string) []string {
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// lower returns a header's name in lower case. The switch has the most frequent names, because strings.ToLower
// allocates.
func lower(name string) string {
	switch name {
	case HeaderMsgID:
		return "nats-msg-id"
	case HeaderJobID:
		return "weir-job-id"
	case HeaderMethod:
		return "weir-method"
	case HeaderPath:
		return "weir-path"
	case HeaderReplyTo:
		return "weir-reply-to"
	case HeaderDeadline:
		return "weir-deadline"
	case HeaderPriority:
		return "weir-priority"
	case HeaderThrottled:
		return "weir-on-throttled"
	case headerContentType:
		return "content-type"
	case keptMsgID:
		return "weir-job-nats-msg-id"
	}
	return strings.ToLower(name)
}

// keptMsgID is the name under which KeptHeader keeps a job's Nats-Msg-Id.
const keptMsgID = HeaderJobNats + "Msg-Id"

// storedHeader returns the job's header as the queue stores it.
func storedHeader(h nats.Header, body []byte, id string) nats.Header {
	stored := KeptHeader(h, body)
	for name := range stored {
		if strings.EqualFold(name, HeaderJobID) {
			delete(stored, name)
		}
	}
	stored[HeaderJobID] = []string{id}
	return stored
}

// KeptHeader returns a job's own header in a form that a stream can store beside body. It renames headers that begin
// with Nats-, which the server would obey. If there is no body it also renames Status, because clients take such a
// message for one from the server. It writes a name that NATS cannot carry as a token, and drops the headers that
// exceed JetStream's maximum.
func KeptHeader(h nats.Header, body []byte) nats.Header {
	kept, size := make(nats.Header, len(h)+2), 0
	if len(h) == 0 {
		return kept
	}
	var renamed map[string]bool // in lower case
	if len(h) > 1 {
		renamed = map[string]bool{}
		for name := range h {
			if as := keptName(name, body); as != name {
				renamed[strings.ToLower(as)] = true
			}
		}
	}
	var some [usualHeaders]string
	for _, name := range sortedNames(h, some[:0]) {
		as := keptName(name, body)
		if as == name && renamed[lower(as)] {
			continue // an earlier redrive left it; the job's own header wins
		}
		for _, v := range h[name] {
			size += len(as) + len(v) + len(": \r\n")
		}
		if size > maxKeptBytes {
			break
		}
		kept[as] = h[name]
	}
	return kept
}

func keptName(name string, body []byte) string {
	switch {
	case name == HeaderMsgID:
		return keptMsgID
	case len(name) >= 5 && strings.EqualFold(name[:5], "Nats-"):
		name = HeaderJobNats + name[5:]
	case len(body) == 0 && strings.EqualFold(name, "Status"):
		name = HeaderJobNats + name
	}
	if !httpguts.ValidHeaderFieldName(name) {
		return cmp.Or(client.Escape(name), NoToken)
	}
	return name
}

func forwards(rule *Rule, name string) bool {
	return slices.ContainsFunc(rule.ForwardHeaders, func(allowed string) bool { return strings.EqualFold(allowed, name) })
}

// headerValue returns the value of a header. It ignores the case of the name, and fails if there is more than one
// value.
func headerValue(h nats.Header, name string) (value string, found bool, err error) {
	switch values := HeaderValues(h, name); len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	default:
		return "", false, fmt.Errorf("header %s stands %d times", name, len(values))
	}
}

// HeaderValues returns the values of a header. It ignores the case of the name, which producers choose.
func HeaderValues(h nats.Header, name string) (all []string) {
	for n, values := range h {
		if len(n) == len(name) && strings.EqualFold(n, name) {
			if all == nil {
				all = values
			} else {
				all = append(slices.Clip(all), values...)
			}
		}
	}
	return all
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// reads reports whether the api takes the key or a cost of its jobs from this header.
func (r *Rule) reads(header string) bool {
	return strings.EqualFold(r.Key.Header, header) || slices.ContainsFunc(r.Costs, func(c CostBound) bool {
		return c.From.Reads(header)
	})
}
