package httpcall

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// Inquiry says how to ask an api what has become of a call whose outcome is unknown.
type Inquiry struct {
	Method  string
	Path    string // below the api's url, maybe with a query; the job's values replace {job}, {key} and {json:/pointer}
	Answers Answers
	Rate    bucket.Rate   // bounds the inquiries
	After   time.Duration // time from the letter until NotProcessed is believed
	Auto    bool
	Tries   int
}

// InquiryAnswer describes one kind of answer and what it means.
type InquiryAnswer struct {
	Status int
	JSON   string   // pointer to a value of the body; "": the status alone decides
	Values []string // values that match; none: any value but null
	Means  Finding
}

// Answers lists what an api's answers mean, either to inquiries about a call or to polls of its operation. The first
// entry that matches decides.
type Answers []InquiryAnswer

// Finding is the result of an inquiry about a call, or of a poll of its operation: a closed set.
type Finding string

// The findings.
const (
	StillUnknown Finding = "unknown"
	Processed    Finding = "processed"
	NotProcessed Finding = "not_processed"
)

// maxInquired bounds the body of an answer to an inquiry. If the body is longer, only the status counts.
const maxInquired = 1 << 20

// Asked is the job that an inquiry is about.
type Asked struct {
	Job, Key string
	Body     []byte
}

// longestInquiry bounds the wait for an answer to an inquiry if the api's timeout is longer.
const longestInquiry = 30 * time.Second

// CanAsk returns an error if the api cannot be asked about a job, because the job lacks a value that the path names.
func (q *Inquiry) CanAsk(about Asked) error {
	_, err := expand(q.Path, about)
	return err
}

// Inquire asks the api about a job. It blocks for at most the api's timeout, or half a minute if that is shorter. It
// sends once, over a connection that the caller has acquired.
func (c *Client) Inquire(ctx context.Context, about Asked, h Hooks) Response {
	q := c.API.Inquiry
	target, err := expand(q.Path, about)
	if err != nil {
		now := time.Now()
		return Response{Err: fmt.Errorf("%w: %w", errNoRequest, err), Started: now, Ended: now}
	}
	path, query, _ := strings.Cut(target, "?")
	api := *c.API
	api.Idempotency, api.Rules.Shared, api.MaxResult = nil, nil, maxInquired
	api.Timeout = min(api.Timeout, longestInquiry)
	asking := Client{API: &api, Agent: c.Agent, Conns: c.Conns}
	return asking.Call(ctx, &ingest.Job{Method: q.Method, Path: path, Query: query}, h)
}

// expand puts the job's values into a path.
func expand(path string, about Asked) (string, error) {
	return fill(path, func(name string) (string, error) {
		switch pointer, isJSON := strings.CutPrefix(name, "json:"); {
		case isJSON:
			found, err := ingest.Pointed(about.Body, pointer)
			if err != nil {
				return "", err
			}
			value := scalar(found)
			if value == "" {
				return "", fmt.Errorf("the body has no text and no number at %s", pointer)
			}
			return value, nil
		case name == "job":
			return about.Job, nil
		}
		return about.Key, nil
	})
}

// fill replaces each placeholder of a path by its value. It escapes the values, so that none adds a segment to the path
// or a parameter to the query.
func fill(path string, of func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(path, "{")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, rest, _ := strings.Cut(after, "}") // the configuration was checked
		value, err := of(name)
		if err != nil {
			return "", err
		}
		if value == "" || value == "." || value == ".." {
			return "", fmt.Errorf("{%s} is %q for this job, which cannot be a part of a path", name, clipped(value))
		}
		b.WriteString(strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
		path = rest
	}
}

// scalar returns a JSON value in the spelling of the configuration, "" for an object, an array and null.
func scalar(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// Read returns what an answer means, and describes it in words. An incomplete answer is StillUnknown.
func (all Answers) Read(r Response) (Finding, string) {
	switch {
	case r.Status == 0 && !r.Sent:
		return StillUnknown, fmt.Sprintf("the api could not be asked: %v", r.Err)
	case r.Status == 0:
		return StillUnknown, fmt.Sprintf("no answer: %v", r.Err)
	case r.Cut:
		return StillUnknown, fmt.Sprintf("the answer with status %d broke off", r.Status)
	}
	for _, a := range all {
		if a.Status != r.Status {
			continue
		}
		if a.JSON == "" {
			return a.Means, fmt.Sprintf("the api answered %d", r.Status) + a.Means.more()
		}
		if r.More || !json.Valid(r.Body) {
			return StillUnknown, fmt.Sprintf("the api answered %d, with a body that is too long or no JSON", r.Status)
		}
		found, err := ingest.Pointed(r.Body, a.JSON)
		if err != nil || found == nil {
			continue // the body has no such value
		}
		if value := scalar(found); len(a.Values) == 0 || slices.Contains(a.Values, value) {
			return a.Means, fmt.Sprintf("the api answered %d with %q at %s", r.Status, clipped(value), a.JSON) + a.Means.more()
		}
	}
	return StillUnknown, fmt.Sprintf("the api answered %d, which tells nothing", r.Status)
}

// more returns what the description of an answer adds to the answer itself. It returns "" except for an operation that
// runs.
func (f Finding) more() string {
	if f == OperationRunning {
		return ": the operation still runs"
	}
	return ""
}

// clipped returns an answer's value for a message. It cuts the value to 40 bytes, because the value may have any
// length.
func clipped(value string) string {
	const most = 40
	if len(value) > most {
		return strings.ToValidUTF8(value[:most], "") + "…"
	}
	return value
}

// Target identifies the place that an api's calls go to, without showing its address. An inquiry about a call must go
// to the same place.
func (a *API) Target() string {
	if a.URL == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(a.URL.Scheme + "://" + a.URL.Host + a.URL.EscapedPath()))
	return hex.EncodeToString(sum[:8])
}
