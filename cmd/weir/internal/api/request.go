package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/letters"
)

// request is one, with its parameters read.
type request struct {
	*http.Request

	who        console.Actor
	connection *http.ResponseController
	asked      time.Time
	given      url.Values
}

// parameter is one of a query. Each may be given once.
type parameter struct {
	name    string
	summary string
	kind    kind
	most    int      // of a number; it is at least 1
	usual   int      // number where none is given
	words   []string // that it may be; none: any
}

// kind is what a parameter is.
type kind string

const (
	text    kind = "string"
	number  kind = "integer"
	instant kind = "instant" // RFC 3339, or how long ago
	yes     kind = "boolean"
)

// parse reads the query strictly: what no parameter is for is refused, so that a typing error is not a question without a bound.
func (r *route) parse(q *http.Request, who console.Actor) (*request, error) {
	given, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be read: %v", err)
	}
	for name, values := range given {
		i := slices.IndexFunc(r.query, func(p parameter) bool { return p.name == name })
		switch {
		case i < 0:
			return nil, badRequest("there is no parameter %q here%s", name, r.parameterNames())
		case len(values) > 1:
			return nil, badRequest("%s is given %d times", name, len(values))
		}
		if err := r.query[i].check(values[0]); err != nil {
			return nil, err
		}
	}
	return &request{Request: q, who: who, asked: time.Now(), given: given}, nil
}

func (r *route) parameterNames() string {
	if len(r.query) == 0 {
		return ", nor any other"
	}
	var names []string
	for _, p := range r.query {
		names = append(names, p.name)
	}
	return "; there are " + strings.Join(names, ", ")
}

func (p *parameter) check(value string) error {
	switch p.kind {
	case number:
		if n, err := strconv.Atoi(value); err != nil || n < 1 || p.most > 0 && n > p.most {
			return badRequest("%s is a whole number from 1 to %d", p.name, p.most)
		}
	case instant:
		if _, err := letters.ReadTime(value, time.Now()); err != nil {
			return badRequest("%s: %v", p.name, err)
		}
	case yes:
		if value != "true" && value != "false" {
			return badRequest("%s is true or false", p.name)
		}
	case text:
		if p.words != nil && !slices.Contains(p.words, value) {
			return badRequest("%s %q: it is one of %s", p.name, value, strings.Join(p.words, ", "))
		}
	}
	return nil
}

// word is a parameter as it was given, "" where it was not.
func (r *request) word(name string) string { return r.given.Get(name) }

// number is a parameter as its route declares it.
func (r *request) number(p parameter) int {
	if n, err := strconv.Atoi(r.given.Get(p.name)); err == nil {
		return n
	}
	return p.usual
}

// seq is a sequence, 0 where none is given.
func (r *request) seq(name string) (uint64, error) {
	value := r.given.Get(name)
	if value == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(value, 10, 64)
	if err != nil || seq == 0 {
		return 0, badRequest("%s is the number of a message, above 0", name)
	}
	return seq, nil
}

// time is a point in time, zero where none is given. It was checked before.
func (r *request) time(name string) time.Time {
	at, err := letters.ReadTime(r.given.Get(name), r.asked)
	if err != nil {
		return time.Time{}
	}
	return at
}

func badRequest(format string, args ...any) error {
	return console.NewProblem(http.StatusBadRequest, format, args...)
}

// problemOf is what an error is answered with. A command's exit code says what kind it is of.
func problemOf(err error) *console.Problem {
	var told *console.Problem
	if errors.As(err, &told) {
		return told
	}
	status := http.StatusInternalServerError
	var exit *cli.Exit
	var wrong *config.Errors
	switch {
	case errors.As(err, &exit):
		switch exit.Code {
		case cli.ExitUsage:
			status = http.StatusBadRequest
		case cli.ExitNotFound:
			status = http.StatusNotFound
		case cli.ExitRefused:
			status = http.StatusConflict
		case cli.ExitUnreachable:
			status = http.StatusServiceUnavailable
		}
	case errors.Is(err, control.ErrLostRace), errors.Is(err, control.ErrCannotFollow):
		status = http.StatusConflict
	case errors.As(err, &wrong):
		status = http.StatusUnprocessableEntity
	case errors.Is(err, context.DeadlineExceeded):
		status, err = http.StatusServiceUnavailable, fmt.Errorf("it took too long: %w", err)
	}
	p := console.NewProblem(status, "%s", err)
	if status == http.StatusServiceUnavailable {
		p.RetryAfter = retryAfter
	}
	return p
}

// retryAfter is when to come again where something did not answer.
const retryAfter = 2 * time.Second
