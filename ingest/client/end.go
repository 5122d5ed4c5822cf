package client

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Done is the outcome of a job that has a result. Every other outcome is the reason of a dead letter: overflow, expired, invalid,
// rejected, exhausted, unknown, over_budget or cancelled.
const Done = "done"

// End is what became of a job: its result, or the notice of its dead letter.
type End struct {
	API, Key, Job string
	Outcome       string
	Status        int       // of the api's last answer; 0 where it gave none
	Attempts      int       // calls that counted against retry.attempts
	Calls         int       // of a result: all calls, pushed back ones too
	Price         string    // of a result: of one call, as the configuration has it
	Accepted      time.Time // this and the next two are zero where they are not known
	Called        time.Time // when the last call started
	Finished      time.Time
	Body          []byte // of a result: the api's answer
	Cut           bool   // the answer was longer than what weir keeps
	ContentType   string // of the answer, as the api wrote it
	Detail        string // of a letter: what happened
	Billed        string // of a letter: whether the api charged: no, yes or unknown
	Header        nats.Header
}

// Done reports whether the job has a result; else it is a dead letter.
func (e End) Done() bool { return e.Outcome == Done }

// The headers of ends, of which some stand in results only, and some in letters.
const (
	outcomeHeader  = "Weir-Outcome"
	reasonHeader   = "Weir-Dead-Reason"
	detailHeader   = "Weir-Dead-Detail"
	billedHeader   = "Weir-Dead-Billed"
	finishedHeader = "Weir-Finished-At"
	deadHeader     = "Weir-Dead-At"
)

// ParseEnd reads a message on Weir-Reply-To, or one of the streams WEIR_RESULTS and WEIR_DEAD. A letter's body is its job's, and left
// out. It reports false for a message that is no end.
func ParseEnd(h nats.Header, body []byte) (End, bool) {
	e := End{
		API: h.Get(HeaderAPI), Key: h.Get(HeaderKey), Job: h.Get(HeaderJobID), Outcome: h.Get(outcomeHeader), Price: h.Get("Weir-Price"),
		Cut: h.Get("Weir-Body") == "cut", Detail: h.Get(detailHeader), Billed: h.Get(billedHeader), Header: h,
	}
	reason := h.Get(reasonHeader)
	if e.Outcome == "" {
		e.Outcome = reason
	}
	of := func(ofResult, ofLetter string) string {
		if reason != "" {
			return h.Get(ofLetter)
		}
		return h.Get(ofResult)
	}
	number := func(text string) int {
		n, _ := strconv.Atoi(text) // absent where it is not known
		return n
	}
	at := func(text string) time.Time {
		t, _ := time.Parse(time.RFC3339Nano, text)
		return t
	}
	e.Status = number(of("Weir-Status", "Weir-Dead-Status"))
	e.Attempts = number(of("Weir-Attempts", "Weir-Dead-Attempts"))
	e.Calls = number(h.Get("Weir-Calls"))
	e.Accepted = at(of("Weir-Accepted-At", "Weir-Dead-Accepted-At"))
	e.Called = at(h.Get("Weir-Called-At"))
	e.Finished = at(of(finishedHeader, deadHeader))
	if reason == "" {
		e.Body, e.ContentType = body, h.Get(headerContentType)
	}
	return e, e.Outcome != "" && e.Job != ""
}

// EndsOnly stands in an inbox, before its last token, where nothing but the ends of jobs is waited for.
const EndsOnly = "ends."

// EndsInbox makes an inbox of a client one for the ends of jobs alone, which weir takes in Weir-Reply-To from every role.
func EndsInbox(inbox string) string {
	last := strings.LastIndexByte(inbox, '.')
	return inbox[:last+1] + EndsOnly + inbox[last+1:]
}
