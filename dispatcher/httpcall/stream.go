package httpcall

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"sync/atomic"
	"time"
)

// form says of which JSON texts an answer's body consists.
type form int8

const (
	document     form = iota // one text
	serverEvents             // text/event-stream: the data of each event is a text
	jsonLines                // application/x-ndjson: each line is a text
)

// formOf returns the form of an answer. A failure is a document, whatever its headers say, because a hold must not wait
// for the end of a stream.
func formOf(status int, h http.Header) form {
	if status >= http.StatusMultipleChoices {
		return document
	}
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // without a type it is a document
	switch kind {
	case "text/event-stream":
		return serverEvents
	case "application/x-ndjson", "application/ndjson", "application/jsonl":
		return jsonLines
	}
	return document
}

// IsReusable reports whether a call's answer may be given to other jobs. The answer must be whole, have a status 2xx
// but not 206, and be no stream: only the reader of a stream knows whether the stream has all its events.
func (r *Response) IsReusable() bool {
	return r.Status >= http.StatusOK && r.Status < http.StatusMultipleChoices && r.Status != http.StatusPartialContent &&
		!r.Cut && !r.More && formOf(r.Status, r.Header) == document
}

// maxEvent is the longest event of a stream that is read for numbers, in bytes. It keeps a stream without ends of lines
// from filling the memory.
const maxEvent = 1 << 20

// unitsOfEvents reads a stream to its end. For each JSON pointer it returns the number in the last whole event that has
// one.
func unitsOfEvents(stream io.Reader, of form, pointers []string) map[string]int64 {
	found := map[string]int64{}
	if len(pointers) == 0 {
		_, _ = io.Copy(io.Discard, stream) // its error is in the reading
		return found
	}
	var event []byte
	take := func() {
		if len(event) > 0 && len(event) < maxEvent && json.Valid(event) {
			maps.Copy(found, findUnits(bytes.NewReader(event), pointers))
		}
		event = event[:0]
	}
	var line []byte
	for lines := bufio.NewReaderSize(stream, 32<<10); ; {
		var err error
		line, err = readLine(lines, line[:0])
		switch data, isData := bytes.CutPrefix(line, []byte("data:")); {
		case of == jsonLines:
			event = append(event, line...)
			take()
		case len(line) == 0:
			take()
		case isData && len(event) < maxEvent:
			event = append(append(event, data...), '\n')
		}
		if err != nil {
			take() // an event that broke off is no whole JSON text
			return found
		}
	}
}

// readLine appends the next line to a buffer, without the line's end. If the line is longer than maxEvent, it appends
// only about that much.
func readLine(r *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line) < maxEvent {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), err
		}
	}
}

// idleBody is an answer's body that ends its call if no byte comes for too long.
type idleBody struct {
	io.ReadCloser
	most  time.Duration
	start time.Time
	due   atomic.Int64 // when the call ends, in nanoseconds since start
	timer *time.Timer
	stop  func(cause error)
}

func newIdleBody(body io.ReadCloser, most time.Duration, stop func(error)) *idleBody {
	b := &idleBody{ReadCloser: body, most: most, start: time.Now(), stop: stop}
	b.due.Store(int64(most))
	b.timer = time.AfterFunc(most, b.idle)
	return b
}

func (b *idleBody) Read(p []byte) (n int, err error) {
	if n, err = b.ReadCloser.Read(p); n > 0 {
		b.due.Store(int64(time.Since(b.start) + b.most))
		b.timer.Reset(b.most)
	}
	return n, err
}

func (b *idleBody) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// idle ends the call, unless a byte has come since the timer fired: then Read has set a later time. If the process
// could not run when the call should have ended, idle first leaves time to read what is in the socket (timeout.go).
func (b *idleBody) idle() {
	due := b.due.Load()
	late := time.Since(b.start) - time.Duration(due)
	if late < 0 {
		return
	}
	if late > lateTimeout {
		rest := time.NewTimer(readingTime)
		<-rest.C
	}
	if b.due.Load() == due {
		b.stop(errIdle)
	}
}
