package bulksubmit

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/grammar"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// MaxLine bounds a line, in bytes. It has room for the largest body in base64, and for the rest of the job.
const MaxLine = 16 << 20

// Defaults are the values for members that a line leaves out.
type Defaults struct {
	API, Key string
	Priority ingest.Priority
}

// Line is one line of a file.
type Line struct {
	Number  int // the first line is 1; blank lines count too
	Job     ingest.Submission
	HasBody bool
	Err     error // why the job cannot be sent
}

// form is the JSON of a line.
type form struct {
	API        *string           `json:"api"`
	Key        *string           `json:"key"`
	ID         string            `json:"id"`
	Body       json.RawMessage   `json:"body"`
	BodyBase64 *string           `json:"body_base64"`
	Path       string            `json:"path"`
	Query      string            `json:"query"`
	Method     string            `json:"method"`
	Header     map[string]values `json:"header"`
	NotBefore  string            `json:"not_before"`
	Deadline   string            `json:"deadline"`
	Priority   string            `json:"priority"`
	Cost       *int64            `json:"cost"`
	ReplyTo    string            `json:"reply_to"`
}

// values holds the values of a header, which JSON may give as one text or as a list.
type values []string

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*v = values{one}
		return nil
	}
	var all []string
	if json.Unmarshal(data, &all) != nil {
		return errors.New("the values of a header must be texts")
	}
	*v = all
	return nil
}

// Lines reads the lines of a file. Only one goroutine may use it.
type Lines struct {
	in       *bufio.Reader
	defaults Defaults
	number   int
	names    names
}

// ReadLines returns the lines of in.
func ReadLines(in io.Reader, d Defaults) *Lines {
	return &Lines{in: bufio.NewReaderSize(in, 1<<16), defaults: d, names: names{}}
}

// Next returns the next line that is not blank. If the line is wrong, Line.Err says why. Next itself fails with io.EOF
// at the end, and if the file cannot be read.
func (l *Lines) Next() (Line, error) {
	for {
		text, err := l.read()
		if err != nil && !errors.Is(err, errTooLong) {
			return Line{}, err
		}
		l.number++
		line := Line{Number: l.number, Err: err}
		if err == nil && len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err == nil {
			line.Err = l.parse(&line, text)
		}
		return line, nil
	}
}

var errTooLong = fmt.Errorf("the line has more than %d MiB", MaxLine>>20)

// endless is the length in bytes above which a line counts as endless. A file with such a line, for example /dev/zero,
// is not a file of jobs.
const endless = 64 * MaxLine

var errEndless = fmt.Errorf("a line has more than %d MiB: this is no file of jobs, one JSON object a line", endless>>20)

// read reads one line, without its newline. It skips a line that is too long, and fails if the line is endless.
func (l *Lines) read() ([]byte, error) {
	var text []byte
	long, size := false, 0
	for {
		part, prefix, err := l.in.ReadLine()
		if err != nil {
			return nil, err
		}
		if size += len(part); size > endless {
			return nil, errEndless
		}
		if long = long || len(text)+len(part) > MaxLine; !long {
			text = append(text, part...)
		}
		switch {
		case prefix:
		case long:
			return nil, errTooLong
		default:
			return text, nil
		}
	}
}

func (l *Lines) parse(line *Line, text []byte) error {
	api, key := l.defaults.API, l.defaults.Key
	f := form{API: &api, Key: &key}
	if err := decode(text, &f); err != nil {
		return err
	}
	job := &line.Job
	*job = ingest.Submission{
		ID: f.ID, Method: f.Method, Path: f.Path, Query: f.Query, ReplyTo: f.ReplyTo, JobHeader: nats.Header{},
	}
	if f.API != nil {
		job.API = *f.API
	}
	if f.Key != nil {
		job.Key = *f.Key
	}
	if err := ingest.CheckAPI(job.API); err != nil {
		return fmt.Errorf("api: name it in the line, or as an argument: %w", err)
	}
	if job.Key != "" {
		if err := ingest.CheckKey(job.Key); err != nil {
			return err
		}
	}
	job.Priority = l.defaults.Priority
	if f.Priority != "" {
		p, err := ingest.ParsePriority(f.Priority)
		if err != nil {
			return fmt.Errorf("priority %.20q: %w", f.Priority, err)
		}
		job.Priority = p
	}
	if f.Cost != nil {
		if job.Cost = *f.Cost; job.Cost < 1 {
			return fmt.Errorf("cost %d is not a whole number from 1", job.Cost)
		}
	}
	if err := readTimes(job, &f); err != nil {
		return err
	}
	for name, all := range f.Header {
		for _, value := range all {
			job.Header = append(job.Header, ingest.HeaderField{Name: name, Value: value})
		}
	}
	if err := readBody(line, &f); err != nil {
		return err
	}
	if job.ID != "" {
		return nil
	}
	var err error
	job.ID, err = l.names.of(job)
	return err
}

// readTimes reads not_before and deadline.
func readTimes(job *ingest.Submission, f *form) error {
	if f.NotBefore != "" {
		job.JobHeader[ingest.HeaderNotBefore] = []string{f.NotBefore} // weir checks it
	}
	if f.Deadline == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, f.Deadline)
	if err == nil {
		job.Deadline = at
		return nil
	}
	if job.Within, err = grammar.ParseDuration(f.Deadline); err != nil || job.Within == 0 {
		return fmt.Errorf("deadline %q is neither an RFC 3339 time nor a duration like 30s", f.Deadline)
	}
	return nil
}

func readBody(line *Line, f *form) error {
	line.HasBody = f.Body != nil || f.BodyBase64 != nil
	switch {
	case f.Body != nil && f.BodyBase64 != nil:
		return errors.New("both body and body_base64: write one of them")
	case f.BodyBase64 != nil:
		body, err := base64.StdEncoding.DecodeString(*f.BodyBase64)
		if err != nil {
			return errors.New("body_base64 is not base64")
		}
		line.Job.Body = body
	default:
		line.Job.Body = f.Body
	}
	return nil
}

// decode reads one JSON object. It refuses unknown members. Its errors are written for users.
func decode(text []byte, f *form) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(f)
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		if d.More() {
			return errors.New("more than one JSON value: write one object a line")
		}
		return nil
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("it is a JSON %s: write one object a line", wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%s cannot be a %s", wrong.Field, wrong.Value)
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("it is not JSON: write one object a line")
	}
	if _, name, unknown := strings.Cut(err.Error(), "unknown field "); unknown {
		return fmt.Errorf("there is no %s: a line has api, key, id, body or body_base64, path, query, method, header, not_before, deadline, priority, cost and reply_to", name)
	}
	return err
}
