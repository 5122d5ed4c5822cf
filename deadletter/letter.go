package deadletter

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"weir/ingest"
)

// Reason says why a job became a letter: a closed set, which is also the label of a metric. List a new reason in
// Reasons. If a refused job can have it, add it to neverTaken too: otherwise redrives of such jobs get a message id of
// their own. Writer.BuryRefused and the dispatcher's examine assign reasons. The topics dead-letters, jobs and metrics
// document them.
type Reason string

// The reasons.
const (
	Overflow   Reason = "overflow"    // the bucket had no room, or the job would have been late
	Expired    Reason = "expired"     // its deadline passed while it waited
	Invalid    Reason = "invalid"     // it cannot be called
	Rejected   Reason = "rejected"    // the api refused it for good
	Exhausted  Reason = "exhausted"   // every attempt failed
	Unknown    Reason = "unknown"     // it is unknown whether the call was processed
	OverBudget Reason = "over_budget" // the budget is used up
	Cancelled  Reason = "cancelled"   // by an operator
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Overflow, Expired, Invalid, Rejected, Exhausted, Unknown, OverBudget, Cancelled}
}

// Billed says whether the api charged for a call.
type Billed string

// The values of Billed.
const (
	NotBilled     Billed = "no"
	BilledYes     Billed = "yes"
	BilledUnknown Billed = "unknown"
)

// Worst returns the worse of what is known about two calls of a job: yes, then unknown, then no.
func (b Billed) Worst(other Billed) Billed {
	for _, worst := range []Billed{BilledYes, BilledUnknown} {
		if b == worst || other == worst {
			return worst
		}
	}
	return NotBilled
}

// The headers that weir adds to a letter.
const (
	HeaderReason   = "Weir-Dead-Reason"
	HeaderDetail   = "Weir-Dead-Detail"
	HeaderAt       = "Weir-Dead-At"
	HeaderAttempts = "Weir-Dead-Attempts"
	HeaderStatus   = "Weir-Dead-Status"
	HeaderBilled   = "Weir-Dead-Billed"
	HeaderAccepted = "Weir-Dead-Accepted-At" // when its producer submitted the job, if known
	HeaderBody     = "Weir-Dead-Body"        // bodyLeftOut, or absent
	HeaderAskedAPI = "Weir-Dead-Asked-Api"   // the unknown api that its producer named, as a token
	HeaderKeyed    = "Weir-Dead-Idempotency" // how the api recognises repeated calls, and since when; absent: it does not
	HeaderRefusals = "Weir-Dead-Refusals"    // how often the job was refused until then; absent: once
	HeaderReplaces = "Weir-Dead-Replaces"    // the number of the letter with fewer refusals that this one replaces
	HeaderFrom     = "Weir-Dead-From"        // the number of the letter from which the job was first redriven
	// HeaderOperation is the address of the operation that the last call began; absent: it began none.
	HeaderOperation = "Weir-Dead-Operation"
	HeaderOutcome   = "Weir-Outcome"
)

// bodyLeftOut is the value of Weir-Dead-Body for a body that was too large to store.
const bodyLeftOut = "left out"

// maxDetailBytes bounds Weir-Dead-Detail, in bytes.
const maxDetailBytes = 512

// Subjects are the subjects of letters: by api, reason and key.
const Subjects ingest.Subjects = "weir.dead."

// Letter is a job that will not be called again unless an operator redrives it.
type Letter struct {
	API, Key, JobID string // "" if unknown
	AskedAPI        string // if API is "": the api that its producer named, if it can be a name
	Origin          string // the job's stream, sequence and time stamp in the queue; "" for a refused job
	Reason          Reason
	Detail          string // what happened; must hold no payload, address or secret
	Header          nats.Header
	Body            []byte
	BodyLeftOut     bool      // it was too large to store
	Accepted        time.Time // when the job came in; zero: unknown
	At              time.Time
	Attempts        int
	Status          int // of the last answer, 0 for none
	Billed          Billed
	Keyed           string // identity of the first keyed call that may have been processed; "": none, or unknown
	Redrives        int
	ReplyTo         string
	Answer          *Answer   // the api's last answer; nil: none
	Call            *LastCall // what is known about the job's last call; nil: nothing
	Operation       string    // the address of the operation that the last call began; "": it began none
	Refusals        int       // how often the job was refused, as far as counted; 0 and 1: once
	Replaces        uint64    // the number of the letter that this one replaces; 0: none

	refusedID string // the message id, if the letter counts refusals; else ""
}

// Subject returns the subject of the letter.
func (l *Letter) Subject() string {
	return Subjects.Of(l.API, string(l.Reason), l.Key)
}

// Message renders the letter: the job's body byte for byte, the job's own headers, and weir's headers. It drops old
// weir headers from an earlier letter.
func (l *Letter) Message() *nats.Msg {
	h := ingest.KeptHeader(l.Header, l.Body)
	for name := range h {
		if l.ours(name) {
			delete(h, name)
		}
	}
	for name, value := range l.facts() {
		h[name] = []string{value}
	}
	h[ingest.HeaderMsgID] = []string{l.msgID()}
	l.Answer.addTo(h)
	return &nats.Msg{Subject: l.Subject(), Header: h, Data: l.Body}
}

// facts returns the headers that weir adds, except the message id and those of the answer.
func (l *Letter) facts() map[string]string {
	facts := map[string]string{
		ingest.HeaderAPI: l.API, ingest.HeaderKey: ingest.HeaderText(l.Key), ingest.HeaderRedrives: strconv.Itoa(l.Redrives),
		HeaderReason: string(l.Reason), HeaderDetail: cleanDetail(l.Detail), HeaderAt: l.At.UTC().Format(time.RFC3339Nano),
		HeaderAttempts: strconv.Itoa(l.Attempts), HeaderStatus: strconv.Itoa(l.Status), HeaderBilled: string(l.billed()),
	}
	if !l.Accepted.IsZero() {
		facts[HeaderAccepted] = l.Accepted.UTC().Format(time.RFC3339Nano)
	}
	if keyed := l.keyed(); keyed != "" {
		facts[HeaderKeyed] = keyed
	}
	if l.Operation != "" {
		facts[HeaderOperation] = l.Operation
	}
	if l.Refusals > 1 {
		facts[HeaderRefusals] = strconv.Itoa(l.Refusals)
	}
	if l.Replaces > 0 {
		facts[HeaderReplaces] = strconv.FormatUint(l.Replaces, 10)
	}
	l.Call.facts(facts)
	if edited := l.Header.Get(HeaderEdited); edited != "" && l.Redrives > 0 {
		facts[HeaderEdited] = edited
	}
	if from := RedrivenFrom(l.Header, l.Redrives); from > 0 {
		facts[HeaderFrom] = strconv.FormatUint(from, 10)
	}
	if l.BodyLeftOut {
		facts[HeaderBody] = bodyLeftOut
	}
	if l.JobID != "" {
		facts[ingest.HeaderJobID] = l.JobID
	}
	if l.AskedAPI != "" {
		facts[HeaderAskedAPI] = ingest.Token(l.AskedAPI)
	}
	return facts
}

// billed returns what is known about all calls of the job. The job's own header tells about the calls before its
// redrive.
func (l *Letter) billed() Billed {
	if l.Redrives == 0 {
		return l.Billed
	}
	return l.Billed.Worst(Billed(l.Header.Get(HeaderBilled)))
}

// keyed returns the identity of the first keyed call of the job. Calls before a redrive count too.
func (l *Letter) keyed() string {
	if l.Redrives == 0 {
		return l.Keyed
	}
	return EarlierKey(l.Keyed, l.Header.Get(HeaderKeyed))
}

// msgID returns the letter's message id. The id is the same if the process dies after it stored the letter and before
// it deleted the job, so the stream refuses a second letter. For refused jobs see refusals.go.
func (l *Letter) msgID() string {
	if l.refusedID != "" {
		return l.refusedID
	}
	if l.Origin == "" {
		return letterIDPrefix + nuid.Next()
	}
	return letterIDPrefix + l.Origin
}

const letterIDPrefix = "letter."

// CanBeAsked reports whether the api may know what became of the letter's job: the call's outcome is unknown, or its
// operation was cancelled and may have gone on.
func (l *Letter) CanBeAsked() bool {
	return l.Reason == Unknown || l.Reason == Cancelled && l.Operation != ""
}

// neverTaken reports whether no queue has ever taken the job, because the intake refused it.
func (l *Letter) neverTaken() bool {
	return l.Origin == "" && l.Redrives == 0 && (l.Reason == Overflow || l.Reason == Invalid)
}

// Notice returns the message for the job's reply subject. It has no body.
func (l *Letter) Notice() *nats.Msg {
	h := nats.Header{HeaderOutcome: {string(l.Reason)}}
	for name, value := range l.facts() {
		h[name] = []string{value}
	}
	ingest.TraceOf(l.Header).AddTo(h)
	return &nats.Msg{Subject: l.ReplyTo, Header: h}
}

// readLetter reads what Message wrote. If weir did not write the message, it reads what it can.
func readLetter(subject string, h nats.Header) Kept {
	h, imported := unfold(h)
	number := func(name string) int {
		n, err := strconv.Atoi(h.Get(name))
		if err != nil {
			return 0
		}
		return n
	}
	l := Letter{
		JobID: h.Get(ingest.HeaderJobID), Detail: h.Get(HeaderDetail), Header: h, Billed: Billed(h.Get(HeaderBilled)), Keyed: h.Get(HeaderKeyed),
		Attempts: number(HeaderAttempts), Status: number(HeaderStatus), Redrives: number(ingest.HeaderRedrives),
		ReplyTo: valueOf(h, ingest.HeaderReplyTo), BodyLeftOut: h.Get(HeaderBody) == bodyLeftOut, Answer: readAnswer(h), Call: readLastCall(h),
		Operation: h.Get(HeaderOperation),
	}
	l.Origin, l.Refusals = OriginIn(h), number(HeaderRefusals)
	if seq, err := strconv.ParseUint(h.Get(HeaderReplaces), 10, 64); err == nil {
		l.Replaces = seq
	}
	if at, err := time.Parse(time.RFC3339Nano, h.Get(HeaderAccepted)); err == nil {
		l.Accepted = at
	}
	if at, err := time.Parse(time.RFC3339Nano, h.Get(HeaderAt)); err == nil {
		l.At = at
	}
	if tokens := strings.Split(subject, "."); len(tokens) == 5 {
		api, apiErr := ingest.ParseToken(tokens[2])
		key, keyErr := ingest.ParseToken(tokens[4])
		if apiErr == nil && keyErr == nil {
			l.API, l.Reason, l.Key = api, Reason(tokens[3]), key
		}
	}
	if l.API == "" {
		if asked, err := ingest.ParseToken(h.Get(HeaderAskedAPI)); err == nil {
			l.AskedAPI = asked
		}
	}
	return Kept{Letter: l, Published: subject, Imported: imported}
}

// ours reports whether weir itself writes a header on letters. If the job has such a header, it comes from an earlier
// letter.
func (l *Letter) ours(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "weir-dead-") || OfAnswer(name) || lower == "weir-redrives" || lower == "weir-api" || lower == "weir-key" ||
		lower == "weir-job-id" && l.JobID != ""
}

// OriginIn returns the origin of a letter's job from the letter's headers, or "" if they name none.
func OriginIn(h nats.Header) string {
	origin, ok := strings.CutPrefix(h.Get(ingest.HeaderMsgID), letterIDPrefix)
	if !ok || !strings.Contains(origin, ".") {
		return ""
	}
	return origin
}

// RedrivenFrom returns the number of the letter from which a job was first redriven, or 0 if unknown. It ignores the
// header if redrives is 0, because then a producer wrote it.
func RedrivenFrom(h nats.Header, redrives int) uint64 {
	from, err := strconv.ParseUint(h.Get(HeaderFrom), 10, 64)
	if err != nil || redrives == 0 {
		return 0
	}
	return from
}

func cleanDetail(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxDetailBytes {
		s = strings.ToValidUTF8(s[:maxDetailBytes], "")
	}
	return s
}
