package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// refusalID is a hash that identifies a refused job and the reason.
type refusalID [16]byte

// identifyRefusal returns the id of a refusal. It returns false if refusals of the job cannot be joined: it was
// redriven, or its producer chose no id.
func identifyRefusal(r *ingest.Refused) (id refusalID, ok bool) {
	if r.Redrives > 0 || !namedByProducer(r) {
		return id, false
	}
	h := sha256.New()
	part := func(text string) { _, _ = fmt.Fprintf(h, "%d:%s", len(text), text) } // a hash never fails
	part(r.API)
	part(r.Key)
	part(r.JobID)
	part(strconv.Itoa(int(r.Refusal.Code)))
	if r.Refusal.Code != ingest.Throttled {
		part(r.Refusal.Description) // another mistake is another reason
	}
	names := make([]string, 0, len(r.Header))
	for name := range r.Header {
		if !strings.EqualFold(name, ingest.HeaderTrace) && !strings.EqualFold(name, ingest.HeaderTraceState) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		part(name)
		for _, value := range r.Header[name] {
			part(value)
		}
	}
	part("") // ends the headers
	_, _ = h.Write(r.Body)
	copy(id[:], h.Sum(nil))
	return id, true
}

// namedByProducer reports whether the producer chose the id of a refused job.
func namedByProducer(r *ingest.Refused) bool {
	for name, values := range r.Header {
		if (strings.EqualFold(name, ingest.HeaderMsgID) || strings.EqualFold(name, ingest.HeaderJobID)) && slices.Contains(values, r.JobID) {
			return r.JobID != ""
		}
	}
	return false
}

// refusedPrefix begins the message ids of letters that count refusals, after letterIDPrefix.
const refusedPrefix = "refused-"

// msgID returns the message id of the job's letter with this number.
func (id refusalID) msgID(life int) string {
	return letterIDPrefix + refusedPrefix + hex.EncodeToString(id[:]) + "-" + strconv.Itoa(life)
}

// of reports whether a stored letter belongs to this job and reason.
func (id refusalID) of(h nats.Header) bool {
	return strings.HasPrefix(h.Get(ingest.HeaderMsgID), letterIDPrefix+refusedPrefix+hex.EncodeToString(id[:])+"-")
}

// sameRefusal reports whether two letters belong to the same refused job and reason.
func sameRefusal(a, b nats.Header) bool {
	first, second := a.Get(ingest.HeaderMsgID), b.Get(ingest.HeaderMsgID)
	cut := strings.LastIndexByte(first, '-')
	return strings.HasPrefix(first, letterIDPrefix+refusedPrefix) && cut > 0 && strings.HasPrefix(second, first[:cut+1])
}

// lifeOf returns the number in the message id of a refused job's letter.
func lifeOf(h nats.Header) int {
	id := h.Get(ingest.HeaderMsgID)
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err != nil {
		return 0
	}
	return n
}
