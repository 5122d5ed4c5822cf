package fakeapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Fault is a way in which the api fails to answer properly. It is a closed set.
type Fault string

// The faults. A reset is a TCP reset (linger 0), not an orderly close.
const (
	NoFault Fault = ""
	// FaultResetHeader resets the connection as soon as the header was read. No work is done, and nothing is billed.
	FaultResetHeader Fault = "reset-header"
	// FaultResetBody resets the connection after the work and before the answer.
	FaultResetBody Fault = "reset-body"
	// FaultResetAnswer resets the connection in the middle of the answer's body.
	FaultResetAnswer Fault = "reset-answer"
	// FaultClose closes the connection in order, without an answer.
	FaultClose Fault = "close"
	// FaultHang does the work and sends nothing until the client gives up.
	FaultHang Fault = "hang"
)

// Bill says whether a call that was carried out is billed.
type Bill string

const (
	// BillByStatus bills a call whose status is 2xx, even if a fault kept the answer from the client. It is the zero
	// value.
	BillByStatus Bill = ""
	// BillAlways bills a call with any status.
	BillAlways Bill = "always"
	// BillNever bills no call.
	BillNever Bill = "never"
)

// Behaviour says what the api does with one request. The zero value answers 200 with a small JSON body.
type Behaviour struct {
	// Status is the status to answer, 200 to 999. Zero means 200, or 302 with a Location.
	Status int
	// Informational are statuses (100, 102, 103 …) that are sent first, before the delay.
	Informational []int
	// Delay passes before the answer. If the client gives up earlier, the delay ends and the work counts as done.
	Delay time.Duration
	// RetryAfter is sent as the header Retry-After exactly as it is, even if it is nonsense.
	RetryAfter string
	// Location is sent as the header Location.
	Location string
	// Header has further headers of the answer.
	Header []Field
	// Fault is what happens instead of a proper answer.
	Fault Fault
	// Bill says whether the call is billed.
	Bill Bill
	// Charge replaces Options.Price for a billed call if it is above zero.
	Charge int64
	// Used is what a billed call uses of Options.Limits.
	Used Tokens

	// Answer is the kind of the body.
	Answer Answer
	// Text is the body for AnswerText.
	Text string
	// Size is the body's length in bytes for AnswerFill, at most MaxAnswer.
	Size int64
	// Drip, if above zero, is the pause after each piece of the body. DripSize is the size of a piece in bytes; zero
	// means 1.
	Drip     time.Duration
	DripSize int
}

// Answer is the kind of an answer's body.
type Answer string

const (
	// AnswerShort is {"call":17,"status":200}. It is the zero value.
	AnswerShort Answer = ""
	// AnswerEcho is the request as JSON.
	AnswerEcho Answer = "echo"
	// AnswerEach is a JSON array with {"call":17,"status":200,"at":0} for each value of the request's array, in order. If
	// the request has no array: AnswerShort.
	AnswerEach Answer = "each"
	// AnswerText is Behaviour.Text.
	AnswerText Answer = "text"
	// AnswerFill is the letter x, Behaviour.Size times.
	AnswerFill Answer = "fill"
)

// status returns the status of the answer. If a fault replaces the answer, it is the status that the answer would have
// had.
func (b *Behaviour) status() int {
	switch {
	case b.Status != 0:
		return b.Status
	case b.Location != "":
		return http.StatusFound
	default:
		return http.StatusOK
	}
}

// bills reports whether the call is billed if its work is done.
func (b *Behaviour) bills() bool {
	switch b.Bill {
	case BillAlways:
		return true
	case BillNever:
		return false
	default:
		return b.status()/100 == 2
	}
}

// validate returns an error if a script's behaviour is not valid.
func (b *Behaviour) validate() error {
	switch s := b.status(); {
	case s < 200 || s > 999:
		return fmt.Errorf("status %d is not from 200 to 999", s)
	case b.Delay < 0 || b.Delay > MaxDelay || b.Drip < 0 || b.Drip > MaxDelay:
		return fmt.Errorf("delay %v or drip %v is not from 0 to %v", b.Delay, b.Drip, MaxDelay)
	case b.Charge < 0:
		return fmt.Errorf("charge %d is negative", b.Charge)
	case min(b.Used.Input, b.Used.Output, b.Used.Written, b.Used.Read, b.Used.Max) < 0:
		return fmt.Errorf("tokens %+v are negative", b.Used)
	case b.Size < 0 || b.Size > MaxAnswer || b.DripSize < 0:
		return fmt.Errorf("size %d must be from 0 to %d, and drip size %d must not be negative", b.Size, MaxAnswer, b.DripSize)
	}
	for _, s := range b.Informational {
		if s < 100 || s > 199 || s == http.StatusSwitchingProtocols {
			return fmt.Errorf("informational status %d cannot be sent", s)
		}
	}
	switch b.Fault {
	case NoFault, FaultResetHeader, FaultResetBody, FaultResetAnswer, FaultClose, FaultHang:
	default:
		return fmt.Errorf("unknown fault %q", b.Fault)
	}
	switch b.Bill {
	case BillByStatus, BillAlways, BillNever:
	default:
		return fmt.Errorf("unknown bill %q", b.Bill)
	}
	switch b.Answer {
	case AnswerShort, AnswerEcho, AnswerEach, AnswerText, AnswerFill:
		return nil
	default:
		return fmt.Errorf("unknown answer %q", b.Answer)
	}
}

// ParseBehaviour parses a behaviour: orders "name=value" or "name", separated by semicolons. Blanks around an order are
// ignored. A semicolon within a value is written \;
//
//	status=503            informational=103     (may be repeated)
//	delay=200ms           retry-after=Fri, 31 Dec 2027 23:59:59 GMT
//	location=/other       header=X-Limit: 5     (may be repeated)
//	reset=header|body|answer     close     hang     bill=always|never
//	echo     each     text=some words     size=1000000     drip=10ms     drip-size=16
func ParseBehaviour(text string) (Behaviour, error) {
	var b Behaviour
	for order := range strings.SplitSeq(strings.ReplaceAll(text, `\;`, "\x00"), ";") {
		order = strings.ReplaceAll(order, "\x00", ";")
		name, value, _ := strings.Cut(strings.TrimSpace(order), "=")
		if name == "" {
			continue
		}
		if err := b.order(name, value); err != nil {
			return Behaviour{}, fmt.Errorf("fakeapi: order %q: %w", order, err)
		}
	}
	if err := b.validate(); err != nil {
		return Behaviour{}, fmt.Errorf("fakeapi: order %q: %w", text, err)
	}
	return b, nil
}

// order applies one order to the behaviour.
func (b *Behaviour) order(name, value string) (err error) {
	switch name {
	case "status":
		b.Status, err = strconv.Atoi(value)
	case "informational":
		var status int
		status, err = strconv.Atoi(value)
		b.Informational = append(b.Informational, status)
	case "delay":
		b.Delay, err = time.ParseDuration(value)
	case "retry-after":
		b.RetryAfter = value
	case "location":
		b.Location = value
	case "header":
		field, content, _ := strings.Cut(value, ":")
		b.Header = append(b.Header, Field{strings.TrimSpace(field), strings.TrimSpace(content)})
	case "reset":
		b.Fault = Fault("reset-" + value)
	case "close", "hang":
		b.Fault = Fault(name)
	case "bill":
		b.Bill = Bill(value)
	case "echo":
		b.Answer = AnswerEcho
	case "each":
		b.Answer = AnswerEach
	case "text":
		b.Answer, b.Text = AnswerText, value
	case "size":
		b.Answer = AnswerFill
		b.Size, err = strconv.ParseInt(value, 10, 64)
	case "drip":
		b.Drip, err = time.ParseDuration(value)
	case "drip-size":
		b.DripSize, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("unknown order")
	}
	return err
}
