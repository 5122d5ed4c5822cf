package deadletter

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"weir/ingest"
)

// Reason is why a job became a letter: a closed set, also a metric's label. A new one is listed in Reasons; neverTaken must know it where
// refused jobs can have it, or their redrive gets an id of its own; Writer.BuryRefused and the dispatcher's examine say when it is given;
// the topics dead-letters, jobs and metrics name it.
type Reason string

// The reasons.
const (
	Overflow   Reason = "overflow"    // it did not fit, or would have been late
	Expired    Reason = "expired"     // its deadline passed while it waited
	Invalid    Reason = "invalid"     // it could not be a call
	Rejected   Reason = "rejected"    // the api said no for good
	Exhausted  Reason = "exhausted"   // every attempt failed
	Unknown    Reason = "unknown"     // nobody knows whether the call was processed
	OverBudget Reason = "over_budget" // the money is spent
	Cancelled  Reason = "cancelled"   // an operator's word
)

// Reasons lists them all.
func Reasons() []Reason {
	return []Reason{Overflow, Expired, Invalid, Rejected, Exhausted, Unknown, OverBudget, Cancelled}
}

// Billed says whether the api charged for a call.
type Billed string

// What can be known of a charge.
const (
	NotBilled     Billed = "no"
	BilledYes     Billed = "yes"
	BilledUnknown Billed = "unknown"
)

// Worst is what is known of all calls of a job together: one that was charged tells, then one that may have been.
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
	HeaderAccepted = "Weir-Dead-Accepted-At" // when its producer handed the job in, where known
	HeaderBody     = "Weir-Dead-Body"        // bodyLeftOut, or absent
	HeaderAskedAPI = "Weir-Dead-Asked-Api"   // what its producer called an api that is not configured; as a token
	HeaderKeyed    = "Weir-Dead-Idempotency" // of calls that may have been processed: what the api told them apart by; absent where it could not
	HeaderRefusals = "Weir-Dead-Refusals"    // of a job that was refused again and again: how often, when the letter was written; absent: once
	HeaderReplaces = "Weir-Dead-Replaces"    // the number of the letter that this one was written in place of, with fewer refusals
	HeaderOutcome  = "Weir-Outcome"
)

// bodyLeftOut says that the job's body was too large to keep.
const bodyLeftOut = "left out"

// maxDetailBytes bounds Weir-Dead-Detail.
const maxDetailBytes = 512

// Subjects are the subjects of letters: of an api, a reason and a key.
const Subjects ingest.Subjects = "weir.dead."

// Letter is a job that will not be called again unless somebody redrives it.
type Letter struct {
	API, Key, JobID string // "" where unknown
	AskedAPI        string // where API is "": the name of the api that its producer asked for, if an api can be called so
	Origin          string // names the job for good: stream, sequence, and when it was stored; "" for a job that was refused
	Reason          Reason
	Detail          string // what happened, fit for anybody: no payload, no address, no secret
	Header          nats.Header
	Body            []byte
	BodyLeftOut     bool      // it was too large to keep
	Accepted        time.Time // when the job came in; zero: unknown
	At              time.Time
	Attempts        int
	Status          int // of the last answer, 0 for none
	Billed          Billed
	Keyed           string // how those calls carried idempotency keys that may have been processed; "" where none did, or nobody knows
	Redrives        int
	ReplyTo         string
	Answer          *Answer   // the api's last; nil where it gave none
	Call            *LastCall // what is known of the job's last call; nil: nothing
	Refusals        int       // how often a refused job was refused, as far as counted; 0 and 1: once
	Replaces        uint64    // the number of the same letter with fewer refusals; 0: none

	refusedID string // the message id of a letter that holds several refusals; "": it does not
}

// Subject is where the letter is published.
func (l *Letter) Subject() string {
	return Subjects.Of(l.API, string(l.Reason), l.Key)
}

// Message renders the letter: the job's body byte for byte, its own headers, and what weir knows.
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

// facts are the headers weir adds.
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

// billed is what is known of all calls of the job: of those before it was redriven, its own header tells.
func (l *Letter) billed() Billed {
	if l.Redrives == 0 {
		return l.Billed
	}
	return l.Billed.Worst(Billed(l.Header.Get(HeaderBilled)))
}

// keyed is Keyed of all calls of the job, as billed is.
func (l *Letter) keyed() string {
	if l.Keyed == "" && l.Redrives > 0 {
		return l.Header.Get(HeaderKeyed)
	}
	return l.Keyed
}

// msgID keeps a letter from being stored twice when the process died between the letter and the job's deletion. Of a
// refused job see refusals.go.
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

// neverTaken reports whether no queue has ever taken the job: it was refused, and not after a redrive.
func (l *Letter) neverTaken() bool {
	return l.Origin == "" && l.Redrives == 0 && (l.Reason == Overflow || l.Reason == Invalid)
}

// Notice is what the job's reply subject gets.
func (l *Letter) Notice() *nats.Msg {
	h := nats.Header{HeaderOutcome: {string(l.Reason)}}
	for name, value := range l.facts() {
		h[name] = []string{value}
	}
	ingest.TraceOf(l.Header).AddTo(h)
	return &nats.Msg{Subject: l.ReplyTo, Header: h}
}

// readLetter reads what Message wrote. What somebody else published on a letter's subject it reads as far as it goes.
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
		ReplyTo: h.Get(ingest.HeaderReplyTo), BodyLeftOut: h.Get(HeaderBody) == bodyLeftOut, Answer: readAnswer(h), Call: readLastCall(h),
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

// ours reports a header that weir itself writes on letters: one that the job has comes from an earlier letter.
func (l *Letter) ours(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "weir-dead-") || OfAnswer(name) || lower == "weir-redrives" || lower == "weir-api" || lower == "weir-key" ||
		lower == "weir-job-id" && l.JobID != ""
}

// OriginIn is the origin of a letter's job as the letter's headers tell it; "" where they do not.
func OriginIn(h nats.Header) string {
	origin, ok := strings.CutPrefix(h.Get(ingest.HeaderMsgID), letterIDPrefix)
	if !ok || !strings.Contains(origin, ".") {
		return ""
	}
	return origin
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
