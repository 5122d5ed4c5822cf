package httpcall

import (
	"context"
	"errors"
	"io"
	"syscall"

	"weir/deadletter"
)

// LastCallOf returns what a letter says of a call, nil if nothing of the call was sent.
func LastCallOf(api *API, r Response) *deadletter.LastCall {
	if !r.Sent {
		return nil
	}
	c := &deadletter.LastCall{
		Started: r.Started, Wrote: r.Wire.Wrote, Bytes: r.Wire.Bytes, Ended: r.Ended, Connection: deadletter.NewConnection, Target: api.Target(),
	}
	if r.Wire.Kept {
		c.Connection = deadletter.KeptConnection
	}
	if r.Status == 0 || r.Cut {
		c.CutBy = cutBy(r.Err)
	}
	return c
}

// cutBy returns what ended a call, given the call's error.
func cutBy(err error) deadletter.Cutter {
	switch {
	case errors.Is(err, errTimeout):
		return deadletter.CutByTimeout
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return deadletter.CutByReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return deadletter.CutByClose
	case errors.Is(err, context.Canceled):
		return deadletter.CutByDeath
	}
	return deadletter.CutByNetwork
}
