package httpintake

import (
	"net/http"
	"strings"

	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// idempotencyKey is the header with which HTTP producers identify a request that they may repeat. It becomes the job's
// Nats-Msg-Id.
const idempotencyKey = "Idempotency-Key"

// jobHeader returns the headers of a request that belong to the job: those of weir and of NATS, the content type, the
// trace, and those in which the api's configuration looks for a key or a cost. All other headers concern the
// connection, the client or its credentials.
func (d *Door) jobHeader(api string, h http.Header) nats.Header {
	job := nats.Header{}
	for name, values := range h {
		switch lower := strings.ToLower(name); lower {
		case ingest.HeaderTrace, ingest.HeaderTraceState, ingest.HeaderBaggage:
			job[lower] = values // in lower case, as producers on NATS write them
		case "content-type":
			job[name] = values
		case "authorization", "cookie", "proxy-authorization":
		default:
			if strings.HasPrefix(lower, "weir-") || strings.HasPrefix(lower, "nats-") || d.Intake.Reads(api, name) {
				job[name] = values
			}
		}
	}
	for _, id := range h[idempotencyKey] {
		if id = unquoted(id); len(job[ingest.HeaderMsgID]) != 1 || job[ingest.HeaderMsgID][0] != id {
			job[ingest.HeaderMsgID] = append(job[ingest.HeaderMsgID][:len(job[ingest.HeaderMsgID]):len(job[ingest.HeaderMsgID])], id)
		}
	}
	return job
}

// unquoted decodes a string of a structured field, as the IETF's draft of Idempotency-Key defines it. It returns any
// other text unchanged.
func unquoted(id string) string {
	if len(id) < 2 || id[0] != '"' || id[len(id)-1] != '"' {
		return id
	}
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(id[1 : len(id)-1])
}
