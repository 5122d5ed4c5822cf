package httpcall

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"weir/deadletter"
	"weir/ingest"
	"weir/ingest/await"
)

// TestUnitsOfStreams checks that the units of a stream are those of the last whole event that has them, however long
// the stream is and however it is cut into events. It also checks that a stream that breaks off counts as cut, even if
// it breaks off behind the part that is kept.
func TestUnitsOfStreams(t *testing.T) {
	chunk := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 1000) + "\"}}],\"usage\":null}\n\n"
	usage := func(n int) string { return fmt.Sprintf("data: {\"usage\":{\"n\":%d}}\n\n", n) }
	const done = "data: [DONE]\n\n"
	for _, c := range []struct {
		what, text string
		of         form
		want       int64 // -1: none
	}{
		{"events", chunk + usage(7) + done, serverEvents, 7},
		{"many events", strings.Repeat(chunk, 500) + usage(7) + done, serverEvents, 7},
		{"the last of several", usage(3) + chunk + usage(5) + chunk, serverEvents, 5},
		{"lines that end with both", strings.ReplaceAll(chunk+usage(7)+done, "\n", "\r\n"), serverEvents, 7},
		{"an event in two lines, with a name", "event: delta\nid: 4\ndata: {\"usage\":\ndata:{\"n\":7}}\n\n", serverEvents, 7},
		{"comments between", ": ping\n\n" + usage(7) + ": ping\n\n", serverEvents, 7},
		{"no end of the last event", strings.TrimSpace(usage(7)), serverEvents, 7},
		{"a last event that broke off", usage(3) + "data: {\"usage\":{\"n\":71", serverEvents, 3},
		{"an event that is too long", usage(3) + "data: \"" + strings.Repeat("x", 2*maxEvent) + "\"\n\n" + usage(9), serverEvents, 9},
		{"no usage", chunk + done, serverEvents, -1},
		{"lines", "{\"usage\":{\"n\":2}}\n{\"x\":1}\n{\"usage\":{\"n\":7}}\n", jsonLines, 7},
		{"lines, the last without an end", "{\"usage\":{\"n\":2}}\n{\"usage\":{\"n\":7}}", jsonLines, 7},
		{"lines, the last broke off", "{\"usage\":{\"n\":2}}\n{\"usage\":{\"n\":7", jsonLines, 2},
		{"nothing", "", serverEvents, -1},
	} {
		for how, body := range map[string]io.Reader{
			"": strings.NewReader(c.text), ", a byte at a time": iotest.OneByteReader(strings.NewReader(c.text)),
			", broken off": io.MultiReader(strings.NewReader(c.text), iotest.ErrReader(errors.New("reset"))),
		} {
			r, told := readBody(io.NopCloser(body), c.of, 50, []string{"/usage/n"})
			got, ok := told["/usage/n"]
			if !ok {
				got = -1
			}
			if got != c.want || (r.err != nil) != (how == ", broken off") || len(r.kept) != min(50, len(c.text)) {
				t.Errorf("%s%s: found %d, want %d; kept %d, %v", c.what, how, got, c.want, len(r.kept), r.err)
			}
		}
	}
}

// TestIdleTimeout checks that a call whose answer stops ends like one that timed out, with the units that the answer
// told until then.
func TestIdleTimeout(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	hold := make(chan struct{})
	defer close(hold)
	server := newRawServer(t, overTCP, func(conn net.Conn, _ int) {
		say(conn, head+"data: {\"n\":4}\n\n")
		await.Receive(t, "the end of the test", hold)
	})
	c := callerOf(t, "http://"+server.listener.Addr().String())
	c.API.Timeout, c.API.IdleTimeout = time.Minute, time.Second
	c.API.Prices = ingest.Units(1).SettledBy(ingest.Source{Pointer: "/n"})
	r := c.claimed(t, &ingest.Job{Method: "POST", ID: "one"})
	if !r.Cut || r.Units["/n"] != 4 || !errors.Is(r.Err, errTimeout) || cutBy(r.Err) != deadletter.CutByTimeout {
		t.Errorf("%+v", r)
	}
	if out := Judge(c.API, r, time.Now()); out.Verdict != Dead || out.Reason != deadletter.Unknown {
		t.Errorf("without an idempotency key: %+v", out)
	}
	c.API.Idempotency = &Idempotency{Header: "Idempotency-Key"}
	if out := Judge(c.API, r, time.Now()); out.Verdict != Again {
		t.Errorf("with an idempotency key: %+v", out)
	}
}

// TestIdleBody checks in virtual time that a body ends its call when no byte has come for idle_timeout, and not before,
// however long it takes in all, also if a byte comes when the timer has fired.
func TestIdleBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3 * time.Second
		from, to := io.Pipe()
		begun := time.Now()
		ended := make(chan time.Duration, 2)
		b := newIdleBody(from, most, func(error) { ended <- time.Since(begun) })
		go func() {
			for range 6 {
				<-time.After(most - 1)
				_, _ = to.Write([]byte("x"))
			}
		}()
		for range 6 {
			if _, err := b.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		b.idle() // a timer that had fired before the last byte came
		if len(ended) != 0 {
			t.Fatal("the call was ended too early")
		}
		<-time.After(most)
		synctest.Wait()
		want := 6*(most-1) + most
		if got := await.Receive(t, "the end of the call", ended); got != want || len(ended) != 0 {
			t.Errorf("the call was ended after %s, and %d times again, want once after %s", got, len(ended), want)
		}
	})
}
