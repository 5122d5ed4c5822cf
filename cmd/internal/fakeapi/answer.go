package fakeapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// fillChunk is how many bytes of a long answer are written at a time.
const fillChunk = 32 << 10

// Echo is the body of an answer of kind AnswerEcho.
type Echo struct {
	Number int64               `json:"number"`
	Method string              `json:"method"`
	Path   string              `json:"path"`
	Query  string              `json:"query"`
	Key    string              `json:"key"`
	Header map[string][]string `json:"header"`
	Host   string              `json:"host"`
	Body   []byte              `json:"body"` // base64
}

// send settles the call's outcome and then sends the answer. number is the number of the call in the answer; in a
// replay it is that of the first call.
func (c *call) send(b Behaviour, number int64, out outcome) {
	body := c.bodyOf(b, number)
	b.Header = append(b.Header[:len(b.Header):len(b.Header)], c.api.opts.Vendor.limits(c.api.opts.Limit, c.left, time.Now())...)
	b.Header = append(b.Header, c.api.opts.Vendor.uses(c.api.opts.Limits, c.uses, time.Now())...)
	if err := c.settle(out); err != nil {
		b, body = Behaviour{Status: http.StatusInternalServerError}, []byte(err.Error()+"\n")
	}
	size := int64(len(body))
	if b.Answer == AnswerFill {
		size = b.Size
	}
	describe(c.w.Header(), b, size)
	c.w.WriteHeader(b.status())
	switch {
	case !carriesBody(b.status()):
	case b.Drip > 0:
		c.drip(b, body)
		c.end()
	case b.Answer == AnswerFill:
		c.fill(b.Size)
		c.end()
	default:
		_, _ = c.w.Write(body) // a client that has gone does not change the outcome
	}
}

// describe sets the answer's headers.
func describe(header http.Header, b Behaviour, size int64) {
	header.Set("Content-Type", "application/json")
	if b.Answer == AnswerText || b.Answer == AnswerFill {
		header.Set("Content-Type", "text/plain")
	}
	if carriesBody(b.status()) {
		header.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	if b.RetryAfter != "" {
		header.Set("Retry-After", b.RetryAfter)
	}
	if b.Location != "" {
		header.Set("Location", b.Location)
	}
	for _, f := range b.Header {
		header.Set(f.Name, f.Value)
	}
}

// bodyOf returns the answer's body. For AnswerFill it returns at most fillChunk bytes of it.
func (c *call) bodyOf(b Behaviour, number int64) []byte {
	switch b.Answer {
	case AnswerText:
		return []byte(b.Text)
	case AnswerFill:
		return []byte(strings.Repeat("x", int(min(b.Size, fillChunk))))
	case AnswerEcho:
		body, err := json.Marshal(Echo{
			Number: number, Method: c.arr.Method, Path: c.arr.Path, Query: c.arr.Query, Key: c.arr.Key,
			Header: c.r.Header, Host: c.r.Host, Body: c.scratch.body.Bytes(),
		})
		if err != nil {
			panic("fakeapi: an echo cannot be marshalled: " + err.Error())
		}
		return body
	case AnswerEach:
		c.scratch.text = eachAnswer(c.scratch.text[:0], c.scratch.body.Bytes(), number, b.status())
		return c.scratch.text
	default:
		c.scratch.text = shortAnswer(c.scratch.text[:0], number, b.status())
		return c.scratch.text
	}
}

// fill writes the letter x size times. It stops early if the client is gone.
func (c *call) fill(size int64) {
	chunk := []byte(strings.Repeat("x", int(min(size, fillChunk))))
	for size > 0 {
		n, err := c.w.Write(chunk[:min(size, int64(len(chunk)))])
		if err != nil {
			return
		}
		size -= int64(n)
	}
}

// drip writes the body in small pieces, with a pause after each piece. It stops early if the client is gone.
func (c *call) drip(b Behaviour, body []byte) {
	size, step := int64(len(body)), int64(max(1, b.DripSize))
	if b.Answer == AnswerFill {
		size = b.Size
	}
	flusher := http.NewResponseController(c.w)
	for sent := int64(0); sent < size; {
		piece := body
		if b.Answer != AnswerFill {
			piece = body[sent:]
		}
		n, err := c.w.Write(piece[:min(step, size-sent, int64(len(piece)))])
		if err != nil || flusher.Flush() != nil || pause(c.r.Context(), b.Drip) != nil {
			return
		}
		sent += int64(n)
	}
}

// carriesBody reports whether an answer with this status may have a body.
func carriesBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}
