package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"golang.org/x/net/http/httpguts"
)

// batched is one job of a batch, as the batch has it. The slices are parts of the message.
type batched struct {
	key    string // as in a subject; "" if the line has none
	header []byte // lines, each with its end
	body   []byte
}

// readBatch divides a batch of n jobs, as client.Batch describes it. It accepts only a whole batch, because after one
// wrong number no boundary is certain. The error says which job is wrong, and at which byte of the message it begins.
func readBatch(data []byte, n int) ([]batched, error) {
	jobs := make([]batched, 0, n)
	for at := 0; len(jobs) < n; {
		j, size, err := cutJob(data[at:])
		if err != nil {
			return nil, fmt.Errorf("job %d of %d, at byte %d: %w", len(jobs)+1, n, at, err)
		}
		jobs = append(jobs, j)
		if at += size; len(jobs) == n && at < len(data) {
			return nil, fmt.Errorf("%d bytes follow after the last of %d jobs, at byte %d", len(data)-at, n, at)
		}
	}
	return jobs, nil
}

// longestJobLine bounds the line before a job, in bytes: two numbers, and a key in which each byte is written as up to
// three.
const longestJobLine = 2*maxDigits + 3*MaxKeyBytes + len("  \r\n")

// maxDigits bounds the digits of a number of bytes. NATS allows no message of a gigabyte.
const maxDigits = 9

var errJobLine = errors.New("it begins with a line `<bytes of the headers> <bytes of the body> <key>`, which ends with CR LF")

// cutJob returns the job at the beginning of data, and how many bytes of data it takes.
func cutJob(data []byte) (j batched, size int, err error) {
	if len(data) == 0 {
		return j, 0, errors.New("the message ends before it")
	}
	line, _, ended := bytes.Cut(data[:min(len(data), longestJobLine)], []byte("\r\n"))
	if !ended {
		return j, 0, errJobLine
	}
	first, rest, two := bytes.Cut(line, []byte(" "))
	second, key, keyed := bytes.Cut(rest, []byte(" "))
	header, ok := parseSize(first)
	body, ok2 := parseSize(second)
	if !two || !ok || !ok2 || keyed && len(key) == 0 || bytes.ContainsAny(key, " \t\r\n") {
		return j, 0, errJobLine
	}
	if header == 0 { // the whole batch is refused here, so that it becomes one letter instead of a thousand
		return j, 0, fmt.Errorf("it has no headers, and each job of a batch needs an id (%s)", HeaderMsgID)
	}
	at := len(line) + len("\r\n")
	if left := len(data) - at; header+body > left {
		return j, 0, fmt.Errorf("it has %d bytes of headers and %d of body by its line, %d bytes follow", header, body, left)
	}
	j.key = string(key)
	j.header, j.body = data[at:at+header:at+header], data[at+header:at+header+body:at+header+body]
	return j, at + header + body, nil
}

// parseSize parses a number of bytes. Each number has one spelling: decimal digits without a sign or leading zeros.
func parseSize(digits []byte) (n int, ok bool) {
	if len(digits) == 0 || len(digits) > maxDigits || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

// parseHeader reads the headers of a batched job as a NATS client reads those of a message. It returns all that it can
// read, and an error about the first line that is not a header. The error goes into letters and events, so it must not
// quote the line, which may hold a secret. If the headers are too large, it reads only the first
// maxHeaderBytes.
func parseHeader(lines []byte) (h nats.Header, err error) {
	h = nats.Header{}
	if len(lines) > maxHeaderBytes {
		err = fmt.Errorf("the headers have %d bytes, at most %d are allowed", len(lines), maxHeaderBytes)
		lines = lines[:bytes.LastIndexByte(lines[:maxHeaderBytes], '\n')+1]
	}
	text := string(lines)
	values := make([]string, 0, strings.Count(text, "\r\n"))
	for n := 1; len(text) > 0; n++ {
		line, rest, ended := strings.Cut(text, "\r\n")
		text = rest
		name, value, ok := strings.Cut(line, ":")
		if !ended || !ok || name == "" || strings.ContainsAny(line, "\r\n") {
			if err == nil {
				err = fmt.Errorf("headers: %s is no line `Name: value` that ends with CR LF", lineCalled(n, name, ok))
			}
			continue
		}
		value = strings.TrimLeft(value, " \t")
		if known := h[name]; known != nil {
			// known has no spare capacity, so append cannot overwrite the value of another header.
			h[name] = append(known, value)
			continue
		}
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	return h, err
}

// lineCalled returns the number of a line, with the header's name if it has one.
func lineCalled(n int, name string, named bool) string {
	if named && httpguts.ValidHeaderFieldName(name) {
		return fmt.Sprintf("line %d (%s)", n, clip(name))
	}
	return fmt.Sprintf("line %d", n)
}

// answerBatchWithin is the longest wait for the answers to the jobs of a batch. Clients wait for 15 seconds.
const answerBatchWithin = 9 * time.Second

// batch is a batch on its way. It collects the answers to its jobs. It must not refer to the message: jobs may stay
// open long after the batch is answered.
type batch struct {
	from    *endpoint
	arrived time.Time
	most    int                 // the most bytes of the answer
	send    func(answer []byte) // called once, with the answer to the batch
	late    *time.Timer

	mu      sync.Mutex // guards what follows
	answers [][]byte   // nil while unknown
	left    int
	sent    bool
}

func newBatch(from *endpoint, arrived time.Time, jobs, most int, send func(answer []byte)) *batch {
	b := &batch{from: from, arrived: arrived, most: most, send: send, answers: make([][]byte, jobs), left: jobs}
	b.late = time.AfterFunc(answerBatchWithin, b.sendKnown)
	return b
}

// hear takes the answer to job i. If it is the last one, hear sends the answer to the batch.
func (b *batch) hear(i int, a Answer) {
	b.from.answered(time.Since(b.arrived), a.Refusal)
	b.mu.Lock()
	b.left--
	if !b.sent {
		b.answers[i] = a.Data
	}
	last := b.left == 0
	b.mu.Unlock()
	if last {
		b.late.Stop()
		b.sendKnown()
	}
}

// sendKnown sends the answer to the batch, unless it was sent before. The answer says null for the jobs whose answers
// are unknown: one job whose stream does not answer must not withhold the receipts of the others.
func (b *batch) sendKnown() {
	b.mu.Lock()
	answers, sent := b.answers, b.sent
	b.answers, b.sent = nil, true
	b.mu.Unlock()
	if !sent {
		b.send(client.JoinAnswers(answers, b.most))
	}
}

// handleBatch takes the jobs of a batch in their order, each as if it had come alone. It answers the batch when each
// job has its answer, or after answerBatchWithin. A batch that cannot be divided is refused as a whole, as one job with
// a letter of its own. address is as in handle.
func (s *Service) handleBatch(from *endpoint, req *nats.Msg, address string) {
	arrived := time.Now()
	name, tokens, _ := strings.Cut(address, ".")
	jobs, err := divide(req, tokens)
	if err != nil {
		in := &submission{service: s, arrived: arrived, apiName: name, header: req.Header, wrong: refuse(Invalid, "batch: %v", err)}
		in.hear = func(a Answer) {
			from.answered(time.Since(arrived), a.Refusal)
			in.send(req.Reply, a)
		}
		whole := Message{Header: in.header, Body: req.Data, Oversize: s.oversize(name, req.Data)}
		if tokens != NoToken {
			whole.Key = KeyFromSubject(tokens)
		}
		in.take(whole)
		return
	}
	reply, n := req.Reply, len(jobs)
	b := newBatch(from, arrived, n, int(s.opts.Conn.MaxPayload()), func(answer []byte) {
		s.reply(reply, &nats.Msg{Data: answer}, func() *slog.Logger { return s.log.With("api", name, "jobs", n) })
	})
	for i, j := range jobs {
		in := &submission{service: s, arrived: arrived, apiName: name, hear: func(a Answer) { b.hear(i, a) }}
		key := j.key
		if tokens != NoToken {
			key = tokens
		}
		// A copy of the body: while a job is open, it must not keep the whole batch in memory.
		msg := Message{Key: KeyFromSubject(key), Body: bytes.Clone(j.body), Batched: true}
		if in.header, err = parseHeader(j.header); err != nil {
			in.wrong, msg.Oversize = refuse(Invalid, "%v", err), s.oversize(name, j.body)
		}
		msg.Header = in.header
		in.take(msg)
	}
}

// oversize returns the size of a body that is too large for a letter of the api, or 0.
func (s *Service) oversize(api string, body []byte) int64 {
	if size := int64(len(body)); size > s.Largest(api) {
		return size
	}
	return 0
}

// divide checks the message of a batch and divides it.
func divide(req *nats.Msg, tokens string) ([]batched, error) {
	if asksFastBatch(req.Reply, req.Header) {
		return nil, errFastBatch
	}
	for name := range req.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "weir-") && lower != "weir-batch" || strings.HasPrefix(lower, "nats-") && name != requestInfo {
			return nil, fmt.Errorf("header %s: it belongs to the jobs in the body", clip(name))
		}
	}
	values := HeaderValues(req.Header, client.HeaderBatch)
	n, err := strconv.Atoi(values[0])
	if err != nil || n < 1 || n > MaxBatch || len(values) > 1 {
		return nil, fmt.Errorf("header %s: it is the number of jobs, once, from 1 to %d", client.HeaderBatch, MaxBatch)
	}
	jobs, err := readBatch(req.Data, n)
	if err != nil || tokens == NoToken {
		return jobs, err
	}
	for i, j := range jobs {
		if j.key != "" {
			return nil, fmt.Errorf("job %d of %d names a key: publish the batch to %s<api>.%s", i+1, n, SubjectPrefix, NoToken)
		}
	}
	return jobs, nil
}
