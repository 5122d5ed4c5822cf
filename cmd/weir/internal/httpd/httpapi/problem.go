package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go"
)

func badRequest(format string, args ...any) error {
	return console.NewProblem(http.StatusBadRequest, format, args...)
}

// problemOf returns the problem that answers an error. The error's exit code decides the status.
func problemOf(err error) *console.Problem {
	var told *console.Problem
	if errors.As(err, &told) {
		return told
	}
	status := http.StatusInternalServerError
	var exit *cli.Exit
	var wrong *problem.Errors
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
	case errors.Is(err, admin.ErrLostRace), errors.Is(err, admin.ErrCannotFollow):
		status = http.StatusConflict
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed):
		status, err = http.StatusServiceUnavailable, errors.New("weir is not connected to NATS and keeps trying; its log says why connecting fails")
	case errors.As(err, &wrong):
		status = http.StatusUnprocessableEntity
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // or the client has gone
		status, err = http.StatusServiceUnavailable, fmt.Errorf("the request took too long: %w", err)
	}
	p := console.NewProblem(status, "%s", err)
	if status == http.StatusServiceUnavailable {
		p.RetryAfter = retryAfter
	}
	return p
}

// retryAfter is the Retry-After of a problem that says that a part of weir did not answer.
const retryAfter = 2 * time.Second
