package client

import (
	"bytes"
	"encoding/json"
	"time"
)

// Receipt is the promise to a producer: the job is stored. Its JSON form is what any NATS client takes for a PubAck.
type Receipt struct {
	Stream    string `json:"stream"`
	Seq       uint64 `json:"seq"`
	Job       string `json:"job"`
	Key       string `json:"key"`
	Duplicate bool   `json:"duplicate,omitempty"`
	// OverSoft says that an admission limit let the job in only within its soft part.
	OverSoft bool `json:"over_soft,omitempty"`
	// Position counts the unfinished jobs of the key up to and with this one; 0 for a job that is finished.
	Position int `json:"position"`
	// ETA is when its call should start; zero when unknown or finished.
	ETA time.Time `json:"-"`
}

// etaLayout keeps milliseconds, and keeps them when they are zero.
const etaLayout = "2006-01-02T15:04:05.000Z07:00"

// receiptAnswer is the wire form of a receipt.
type receiptAnswer struct {
	Receipt
	ETA   string `json:"eta,omitempty"`
	ETAms *int64 `json:"eta_ms,omitempty"`
}

// WireForms are a receipt and a refusal as they are written in JSON, for a description of the answers.
func WireForms() (receipt, refusal any) { return receiptAnswer{}, refusalAnswer{} }

// Answer renders the receipt for the producer at the time now.
func (r Receipt) Answer(now time.Time) []byte {
	w := receiptAnswer{Receipt: r}
	if !r.ETA.IsZero() {
		ms := max(0, r.ETA.Sub(now).Milliseconds())
		w.ETA, w.ETAms = r.ETA.UTC().Format(etaLayout), &ms
	}
	return mustJSON(w)
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
