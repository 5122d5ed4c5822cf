package fakeapi

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// fault settles a call, and then commits the ordered fault instead of a proper answer. From out it uses the bill and
// the release; the ending follows from the fault. The work counts as done and is billed, except with FaultResetHeader.
func (c *call) fault(b Behaviour, out outcome) {
	out.status = 0
	var head []byte
	switch b.Fault {
	case FaultResetHeader:
		out.ending = ResetHeader
	case FaultResetBody:
		out.ending = ResetBody
	case FaultResetAnswer:
		out.ending, out.status = ResetAnswer, b.status()
		head = c.half(b)
	case FaultClose:
		out.ending = Closed
	case FaultHang:
		out.ending = Hung
	default:
		panic("fakeapi: unknown fault " + string(b.Fault)) // a bug in validate
	}
	if err := c.settle(out); err != nil {
		http.Error(c.w, err.Error(), http.StatusInternalServerError)
		return
	}
	if b.Fault == FaultHang {
		<-c.r.Context().Done()
		c.end()
		panic(http.ErrAbortHandler)
	}
	err := c.breakOff(head, b.Fault)
	c.end()
	if err != nil {
		panic(http.ErrAbortHandler) // the connection was gone already
	}
}

// half returns the head of an answer and the first half of its body, as sent on the wire. Of a long body it returns 16
// KiB.
func (c *call) half(b Behaviour) []byte {
	body := c.bodyOf(b, c.arr.Number)
	size := int64(len(body))
	if b.Answer == AnswerFill {
		size = b.Size
	}
	header := make(http.Header)
	describe(header, b, size)
	head := bytes.NewBuffer(nil)
	fmt.Fprintf(head, "HTTP/1.1 %d %s\r\n", b.status(), http.StatusText(b.status()))
	if err := header.Write(head); err != nil {
		panic("fakeapi: a header cannot be written to memory: " + err.Error())
	}
	head.WriteString("\r\n")
	body = body[:len(body)/2]
	if end := bytes.LastIndex(body, []byte("\n\n")); end >= 0 {
		body = body[:end+2] // half of the events, each whole
	}
	head.Write(body)
	return head.Bytes()
}

// breakOff takes the connection from the server, writes head, and ends the connection: in order with FaultClose,
// otherwise by a reset.
func (c *call) breakOff(head []byte, fault Fault) error {
	c.api.conns.Add(1) // after Hijack the server no longer counts the connection
	defer c.api.conns.Done()
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return err
	}
	_, werr := conn.Write(head)
	if tcp, ok := conn.(*net.TCPConn); ok && fault != FaultClose {
		werr = errors.Join(werr, tcp.SetLinger(0))
	}
	return errors.Join(werr, conn.Close())
}
