package fleet

import (
	"encoding/json"
	"strings"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// prefix begins the keys of the entries in the control bucket.
const prefix = "hold."

// keyOf returns the key of an api's entry. Like the keys of pauses, it has = for %.
func keyOf(api string) string { return prefix + strings.ReplaceAll(ingest.Token(api), "%", "=") }

// apiOf returns the api of an entry's key. ok is false for a key that weir has not made.
func apiOf(key string) (api string, ok bool) {
	token, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", false
	}
	api, err := ingest.ParseToken(strings.ReplaceAll(token, "=", "%"))
	return api, err == nil
}

// entry is what the replicas know of an api, as weir_control stores it. Its durations count from its write.
type entry struct {
	Replica string `json:"replica"` // the one that wrote it
	Session string `json:"session"` // names the process that wrote it

	HeldMS  int64  `json:"held_ms,omitempty"` // how long the api must not be called
	Why     string `json:"why,omitempty"`
	Turn    int64  `json:"turn,omitempty"`   // how often the breaker has opened and closed
	Turned  string `json:"turned,omitempty"` // the session of the process whose breaker opened or closed last
	Open    bool   `json:"open,omitempty"`
	OpenMS  int64  `json:"open_ms,omitempty"` // until the probe may be made
	Opened  int    `json:"opened,omitempty"`
	Denied  bool   `json:"denied,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Share   int64  `json:"share,omitempty"`   // the part of the rate that pushback has left
	Probing string `json:"probing,omitempty"` // the session of the process that may probe
}

// mostText bounds each text of an entry, in bytes.
const mostText = 400

// mostMS bounds the times of an entry: a longer one was not written by weir. The schedule has closer bounds.
const mostMS = int64(366 * 24 * time.Hour / time.Millisecond)

// encode returns the entry as weir_control stores it.
func (e entry) encode() []byte {
	data, err := json.Marshal(e)
	if err != nil {
		panic("fleet: an entry that cannot be encoded: " + err.Error()) // it has only numbers and texts
	}
	return data
}

// put makes the entry say what f says. The durations count from f.At.
func (e *entry) put(f *schedule.Finding) {
	e.HeldMS, e.Why = left(f.At, f.Held), ""
	if e.HeldMS > 0 {
		e.Why = clip(f.Why)
	}
	e.Turn, e.Open, e.OpenMS, e.Opened, e.Denied, e.Reason = f.Turn, f.Open(), left(f.At, f.Until), f.Opened, f.Denied, clip(f.Reason)
	e.Share = f.Share
}

// left returns the milliseconds from one time to another, rounded up, and at least 0.
func left(from, to bucket.Micros) int64 {
	if to <= from {
		return 0
	}
	return int64(from.Until(to)+time.Millisecond-1) / int64(time.Millisecond)
}

// finding returns what the entry says. at is the time at which it was written, by this process's clock.
func (e *entry) finding(at bucket.Micros) schedule.Finding {
	after := func(ms int64) bucket.Micros { return at.Add(time.Duration(min(max(ms, 0), mostMS)) * time.Millisecond) }
	f := schedule.Finding{At: at, Turn: e.Turn, Share: e.Share}
	if e.HeldMS > 0 {
		f.Held, f.Why = after(e.HeldMS), e.Why
	}
	if e.Open {
		f.Until, f.Opened, f.Denied, f.Reason = max(after(e.OpenMS), 1), max(e.Opened, 1), e.Denied, e.Reason
	}
	return f
}

// read parses a stored entry. It returns the zero entry for a value that weir has not written.
func read(value []byte) (e entry) {
	if json.Unmarshal(value, &e) != nil || e.Turn < 0 || e.Turn > mostTurn {
		return entry{}
	}
	return e
}

// mostTurn bounds the number of a turn of the breaker. A greater one shows that the entry is damaged.
const mostTurn = 1 << 52

func clip(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}
