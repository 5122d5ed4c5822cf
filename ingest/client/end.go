package client

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Done is the outcome of a job with a result. Any other outcome is the reason of a dead letter: overflow, expired,
// invalid, rejected, exhausted, unknown, over_budget or cancelled.
const Done = "done"

// End is the end of a job: its result, or the notice of its dead letter.
type End struct {
	API, Key, Job string
	Outcome       string
	Status        int       // of the api's last answer; 0 if it gave none
	Attempts      int       // calls that counted against retry.attempts
	Calls         int       // of a result: all calls, including those that met pushback
	Price         string    // of a result: per call, as configured
	Accepted      time.Time // this and the next two are zero if unknown
	Called        time.Time // when the last call started
	Finished      time.Time
	Body          []byte // of a result: the api's answer
	Cut           bool   // the answer was longer than weir keeps
	Reused        string // of a result: the job whose answer this is, called at Called; "": the job's own
	ContentType   string // of the answer, as the api sent it
	Detail        string // of a letter: what happened
	Billed        string // of a letter: whether the api charged: no, yes or unknown
	Header        nats.Header
}

// Done reports whether the job has a result. Otherwise it has a dead letter.
func (e End) Done() bool { return e.Outcome == Done }

// The headers of ends. Some occur only in results, others only in letters.
const (
	outcomeHeader  = "Weir-Outcome"
	reasonHeader   = "Weir-Dead-Reason"
	detailHeader   = "Weir-Dead-Detail"
	billedHeader   = "Weir-Dead-Billed"
	finishedHeader = "Weir-Finished-At"
	deadHeader     = "Weir-Dead-At"
)

// ParseEnd parses a message from Weir-Reply-To or from the streams WEIR_RESULTS and WEIR_DEAD. It omits a letter's
// body, which is the body of the job. It returns false if the message is not an end.
func ParseEnd(h nats.Header, body []byte) (End, bool) {
	e := End{
		API: h.Get(HeaderAPI), Key: h.Get(HeaderKey), Job: h.Get(HeaderJobID), Outcome: h.Get(outcomeHeader), Price: h.Get("Weir-Price"),
		Cut: h.Get("Weir-Body") == "cut", Detail: h.Get(detailHeader), Billed: h.Get(billedHeader), Reused: h.Get("Weir-Reused"), Header: h,
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
		n, _ := strconv.Atoi(text) // absent if unknown
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

// endsAs reports whether a stored end belongs to the job with this receipt. The end's message id names the stream and
// the sequence at which the job was queued. They must be the receipt's or, after a redrive, a later sequence. The end
// of an earlier job with the same id has an earlier sequence, and that of a refused submission has none. A receipt
// without a sequence matches any end.
func (r Receipt) endsAs(e End) bool {
	id := e.Header.Get(HeaderMsgID)
	if _, imported, ok := strings.Cut(e.Header.Get("Weir-Dead-Imported"), " "); ok {
		id = imported
	}
	place := strings.Split(id, ".") // result, found, reused or letter; the stream; the sequence; when it was stored
	if len(place) != 4 {
		return false
	}
	seq, err := strconv.ParseUint(place[2], 10, 64)
	return err == nil && (r.Seq == 0 || place[1] == r.Stream && seq >= r.Seq)
}

// EndsOnly comes before the last token of an inbox that receives only the ends of jobs.
const EndsOnly = "ends."

// EndsInbox returns inbox as one that receives only the ends of jobs. weir accepts such an inbox in Weir-Reply-To from
// every role.
func EndsInbox(inbox string) string {
	last := strings.LastIndexByte(inbox, '.')
	return inbox[:last+1] + EndsOnly + inbox[last+1:]
}
