package client

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// Receipt is the promise to a producer that the job is stored. Any NATS client reads its JSON form as a PubAck.
type Receipt struct {
	Stream    string `json:"stream"`
	Seq       uint64 `json:"seq"`
	Job       string `json:"job"`
	Key       string `json:"key"`
	Duplicate bool   `json:"duplicate,omitempty"`
	// OverSoft reports that an admission limit accepted the job only within its soft part.
	OverSoft bool `json:"over_soft,omitempty"`
	// Position counts the unfinished jobs of the key up to and including this one; 0 if this job is finished.
	Position int `json:"position"`
	// ETA is when the job's call should start. It is zero if unknown, or if the job is finished.
	ETA time.Time `json:"-"`
}

// etaLayout writes exactly three digits of milliseconds.
const etaLayout = "2006-01-02T15:04:05.000Z07:00"

// receiptAnswer is the wire form of a receipt.
type receiptAnswer struct {
	Receipt
	ETA   string `json:"eta,omitempty"`
	ETAms *int64 `json:"eta_ms,omitempty"`
}

// WireForms returns zero values of the JSON forms of a receipt and of a refusal, for JSON schemas.
func WireForms() (receipt, refusal any) { return receiptAnswer{}, refusalAnswer{} }

// usualReceipt is the usual size of a receipt in bytes.
const usualReceipt = 256

// Answer renders the receipt as JSON for the producer. now is the time from which eta_ms counts. Answer writes the JSON
// by hand because every job needs it; a test compares the result with receiptAnswer.
func (r Receipt) Answer(now time.Time) []byte {
	b := make([]byte, 0, usualReceipt)
	b = appendText(append(b, `{"stream":`...), r.Stream)
	b = strconv.AppendUint(append(b, `,"seq":`...), r.Seq, 10)
	b = appendText(append(b, `,"job":`...), r.Job)
	b = appendText(append(b, `,"key":`...), r.Key)
	if r.Duplicate {
		b = append(b, `,"duplicate":true`...)
	}
	if r.OverSoft {
		b = append(b, `,"over_soft":true`...)
	}
	b = strconv.AppendInt(append(b, `,"position":`...), int64(r.Position), 10)
	if !r.ETA.IsZero() {
		b = r.ETA.UTC().AppendFormat(append(b, `,"eta":"`...), etaLayout)
		b = strconv.AppendInt(append(b, `","eta_ms":`...), max(0, r.ETA.Sub(now).Milliseconds()), 10)
	}
	return append(b, '}')
}

// appendText appends a text as a JSON string. Only texts that need an escape go through encoding/json.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, mustJSON(text)...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

func mustJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // people read descriptions
	if err := enc.Encode(v); err != nil {
		panic("ingest: an answer that JSON cannot carry: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
