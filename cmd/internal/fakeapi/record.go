package fakeapi

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// record is one line of the ledger. Event decides which fields are set:
//
//	start    a process took up the ledger: run, wall, boot, mono, at
//	arrival  a request's header was read: n, at, method, path, query, key, cost, header
//	answer   the call was settled, its answer is about to be sent: n, end, ending, status, billed, charge, tokens, seen, size, hash, body
//	end      the last byte was sent, the client gave up or the connection was reset: n, end (only where that is later)
type record struct {
	Event  string            `json:"e"`
	Number int64             `json:"n"`
	At     int64             `json:"at"`
	End    int64             `json:"end"`
	Method string            `json:"method"`
	Path   string            `json:"path"`
	Query  string            `json:"query"`
	Key    string            `json:"key"`
	Cost   int64             `json:"cost"`
	Header map[string]string `json:"header"`
	Ending Ending            `json:"ending"`
	Status int               `json:"status"`
	Billed bool              `json:"billed"`
	Charge int64             `json:"charge"`
	Tokens [5]int64          `json:"tokens"`
	Seen   bool              `json:"seen"`
	Size   int64             `json:"size"`
	Hash   string            `json:"hash"`
	Body   []byte            `json:"body"`

	Run  int       `json:"run"`
	Wall time.Time `json:"wall"`
	Boot string    `json:"boot"`
	Mono int64     `json:"mono"`
}

// The append functions write a line by hand, because encoding/json would take longer than the rest of the call.

func appendStart(line []byte, run int, now instant, at int64) []byte {
	line = append(line, `{"e":"start","run":`...)
	line = strconv.AppendInt(line, int64(run), 10)
	line = append(line, `,"wall":"`...)
	line = now.wall.UTC().AppendFormat(line, time.RFC3339Nano)
	line = append(line, '"')
	line = appendText(line, "boot", now.boot)
	line = appendNumber(line, "mono", int64(now.mono))
	line = appendNumber(line, "at", at)
	return append(line, "}\n"...)
}

func appendArrival(line []byte, a *Arrival) []byte {
	line = append(line, `{"e":"arrival","n":`...)
	line = strconv.AppendInt(line, a.Number, 10)
	line = appendNumber(line, "at", a.At)
	line = appendText(line, "method", a.Method)
	line = appendText(line, "path", a.Path)
	line = appendText(line, "query", a.Query)
	line = appendText(line, "key", a.Key)
	line = appendNumber(line, "cost", a.Cost)
	if len(a.Fields) > 0 {
		line = append(line, `,"header":{`...)
		for i, f := range a.Fields {
			if i > 0 {
				line = append(line, ',')
			}
			line = appendQuoted(line, f.Name)
			line = append(line, ':')
			line = appendQuoted(line, f.Value)
		}
		line = append(line, '}')
	}
	return append(line, "}\n"...)
}

func appendAnswer(line []byte, number int64, s settlement) []byte {
	line = append(line, `{"e":"answer","n":`...)
	line = strconv.AppendInt(line, number, 10)
	line = appendNumber(line, "end", s.end)
	line = appendText(line, "ending", string(s.ending))
	line = appendNumber(line, "status", int64(s.status))
	if s.billed {
		line = append(line, `,"billed":true`...)
		line = appendNumber(line, "charge", s.charge)
		line = appendTokens(line, s.used)
	}
	if s.seen {
		line = append(line, `,"seen":true`...)
	}
	line = appendNumber(line, "size", s.bodySize)
	line = appendText(line, "hash", s.bodyHash)
	if len(s.body) > 0 {
		line = append(line, `,"body":"`...)
		line = base64.StdEncoding.AppendEncode(line, s.body)
		line = append(line, '"')
	}
	return append(line, "}\n"...)
}

func appendEnd(line []byte, number, end int64) []byte {
	line = append(line, `{"e":"end","n":`...)
	line = strconv.AppendInt(line, number, 10)
	line = appendNumber(line, "end", end)
	return append(line, "}\n"...)
}

func appendNumber(line []byte, name string, value int64) []byte {
	line = append(line, ',', '"')
	line = append(line, name...)
	line = append(line, '"', ':')
	return strconv.AppendInt(line, value, 10)
}

// appendTokens appends the tokens of a call, unless there are none.
func appendTokens(line []byte, t Tokens) []byte {
	if t == (Tokens{}) {
		return line
	}
	for i, n := range [...]int64{t.Input, t.Output, t.Written, t.Read, t.Max} {
		line = append(line, [...]string{`,"tokens":[`, `,`, `,`, `,`, `,`}[i]...)
		line = strconv.AppendInt(line, n, 10)
	}
	return append(line, ']')
}

// appendText appends a member, unless its value is empty.
func appendText(line []byte, name, value string) []byte {
	if value == "" {
		return line
	}
	line = append(line, ',', '"')
	line = append(line, name...)
	line = append(line, '"', ':')
	return appendQuoted(line, value)
}

// appendQuoted appends a JSON string. Bytes that are not UTF-8 become U+FFFD, as with encoding/json.
func appendQuoted(line []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic("fakeapi: a string cannot be marshalled: " + err.Error())
			}
			return append(line, quoted...)
		}
	}
	line = append(line, '"')
	line = append(line, s...)
	return append(line, '"')
}

// arrival returns the arrival of an arrival record.
func (r *record) arrival() Arrival {
	a := Arrival{
		Number: r.Number, At: r.At, Method: r.Method, Path: r.Path, Query: r.Query, Key: r.Key, Cost: r.Cost,
		Fields: make([]Field, 0, len(r.Header)),
	}
	for name, value := range r.Header {
		a.Fields = append(a.Fields, Field{name, value})
	}
	slices.SortFunc(a.Fields, byName)
	return a
}

// settle copies an answer record into its arrival.
func (r *record) settle(a *Arrival) {
	a.End, a.Ending, a.Status = r.End, r.Ending, r.Status
	a.Billed, a.Charge, a.Seen = r.Billed, r.Charge, r.Seen
	a.Used = Tokens{Input: r.Tokens[0], Output: r.Tokens[1], Written: r.Tokens[2], Read: r.Tokens[3], Max: r.Tokens[4]}
	a.BodySize, a.BodyHash, a.Body = r.Size, r.Hash, r.Body
}
