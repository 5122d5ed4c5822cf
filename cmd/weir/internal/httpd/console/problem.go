package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Problem is an error as HTTP reports it (RFC 9457, application/problem+json).
type Problem struct {
	Type    string `json:"type"` // a URI; about:blank if the status says it all
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	ErrCode int    `json:"err_code"` // 20000 and the status

	RetryAfter time.Duration `json:"-"` // for the header Retry-After; 0: no such header
}

// errCodes plus the status is the error code, as in answers on NATS.
const errCodes = 20000

// NewProblem returns a problem with this status. format and args make its Detail.
func NewProblem(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...), ErrCode: errCodes + status}
}

// Error returns the Detail.
func (p *Problem) Error() string { return p.Detail }

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) { WriteProblem(w, p, p) }

// WriteProblem answers with the status and headers of p. The body is as: the problem p with its further members.
func WriteProblem(w http.ResponseWriter, p *Problem, as any) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
	writeAs(w, "application/problem+json", p.Status, as)
}

// WriteJSON answers with v, which must be encodable as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) { writeAs(w, "application/json", status, v) }

func writeAs(w http.ResponseWriter, kind string, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("an answer that JSON cannot carry: " + err.Error())
	}
	w.Header().Set("Content-Type", kind)
	WriteBody(w, status, append(data, '\n'))
}

// ReadJSON reads the body of a request. The body must be exactly one JSON value without unknown fields.
func ReadJSON(r *http.Request, into any) *Problem {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && decoder.Decode(&struct{}{}) != io.EOF {
		err = errors.New("there is more than one value")
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return NewProblem(http.StatusRequestEntityTooLarge, "the body is over %d bytes", large.Limit)
	case err != nil:
		return NewProblem(http.StatusBadRequest, "the body is not the JSON that this route takes: %s", err)
	}
	return nil
}
