package httpintake

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// body is what was read of the body of a request.
type body struct {
	data     []byte
	oversize int64 // as in ingest.Message
	room     int64 // bytes that were taken from the room for bodies; the caller must give them back
}

// readBody reads a body of at most most bytes. It reports a larger body in oversize, and does not read it if
// Content-Length already shows its size. readBody blocks at most until the connection's deadline. The caller must give
// back the room of the returned body.
func (d *Door) readBody(r *http.Request, most int64) (b body, refused *Problem) {
	if r.ContentLength > most {
		return body{oversize: r.ContentLength}, nil
	}
	if b.room = r.ContentLength; b.room < 0 {
		b.room = most
	}
	if !d.bodies.TryAcquire(b.room) {
		return body{}, unavailable("as much of other jobs waits to be stored as may, nothing was kept: try again")
	}
	data, err := readAll(r, most)
	switch {
	case err == nil && int64(len(data)) > most:
		d.bodies.Release(b.room)
		return body{oversize: -1}, nil
	case err == nil:
		b.data = data
		return b, nil
	}
	d.bodies.Release(b.room)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return body{}, refuse(http.StatusRequestTimeout, fmt.Sprintf("the body did not arrive within %s, nothing was kept: try again", d.bodyWait))
	}
	return body{}, refuse(http.StatusBadRequest, "the body could not be read, nothing was kept: send it again")
}

// readAll reads as many bytes as Content-Length says. Without a Content-Length it reads at most one byte more than
// most.
func readAll(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength >= 0 {
		data := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, data)
		return data, err
	}
	return io.ReadAll(io.LimitReader(r.Body, most+1))
}
