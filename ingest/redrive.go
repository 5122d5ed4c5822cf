package ingest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// RedrivePrefix begins the subjects on which redrives arrive: <api>.<key> follows, as after SubjectPrefix. Producers
// must not have the right to publish there. Operators that may pause and cancel have it.
const RedrivePrefix = "weir.operator.redrive."

// RedriveID returns the message id of a job's n-th redrive. The redriven job keeps its Weir-Job-Id and so its
// idempotency key. It carries n in Weir-Redrives.
func RedriveID(job string, n int) string { return job + ".r" + strconv.Itoa(n) }

// maxRedriveIDBytes bounds the message id of a redrive, for a job whose id has the maximum length.
const maxRedriveIDBytes = MaxIDBytes + len(".r2147483647")

// redriveMark begins the dedupe id of a redrive. An id contains no blank, so a producer's job named x.r1 never equals
// the first redrive of job x. Stored jobs may have such names from before weir refused them.
const redriveMark = " "

// isRedriveID reports whether an id has the form that RedriveID makes.
func isRedriveID(id string) bool {
	at := strings.LastIndex(id, ".r")
	if at < 1 {
		return false
	}
	n, err := strconv.ParseInt(id[at+2:], 10, 32)
	return err == nil && n > 0 && id == RedriveID(id[:at], int(n))
}

// checkClaims refuses a producer's job that claims to be a redrive by its headers or its id. Otherwise the job would be
// called although the job of that id has ended, and the next redrive would take it for a redrive of that job and delete
// the letter.
func checkClaims(m Message) *Refusal {
	if m.Redrive {
		return nil
	}
	if saysRedrives(m.Header) {
		return refuse(Invalid, "header %s: only weir writes it: leave it out, or redrive with `weir dead redrive`", HeaderRedrives)
	}
	for name, values := range m.Header {
		if (strings.EqualFold(name, HeaderMsgID) || strings.EqualFold(name, HeaderJobID)) && slices.ContainsFunc(values, isRedriveID) {
			return refuse(Invalid, "an id that ends in .r and a number is a redrive's: choose another")
		}
	}
	return nil
}

// saysRedrives reports whether a job carries Weir-Redrives.
func saysRedrives(h nats.Header) bool {
	for name := range h {
		if strings.EqualFold(name, HeaderRedrives) {
			return true
		}
	}
	return false
}

// isRedrive reports whether the job's headers are those of a redrive.
func (j *Job) isRedrive(msgID string) bool {
	return j.Redrives > 0 && j.ID != "" && msgID == RedriveID(j.ID, j.Redrives)
}
