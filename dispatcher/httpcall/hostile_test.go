package httpcall

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"weir/ingest"
	"weir/ingest/await"
)

// TestHostileHeads checks that an answer whose head has no end is given up long before it fills the memory, and
// that a letter says in plain words what was wrong with a malformed one.
func TestHostileHeads(t *testing.T) {
	const begin = "HTTP/1.1 200 OK\r\n"
	for what, c := range map[string]struct{ first, then, want string }{
		"no status":              {"HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n", "", errNoStatus.Error()},
		"a status of two digits": {"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", "", errNoStatus.Error()},
		"headers without end":    {begin, "X-Same: " + strings.Repeat("v", 1000) + "\r\n", errLongHead.Error()},
		"lines without end":      {begin, "%d:\r\n", errLongHead.Error()},
		"a line without end":     {begin + "X: ", strings.Repeat("swordfish", 100), errLongHead.Error()},
		"a status without end":   {"HTTP/1.1 200 ", strings.Repeat("swordfish", 100), errLongHead.Error()},
		"hints without end":      {"HTTP/1.1 103 Hints\r\n\r\n", "HTTP/1.1 103 Hints\r\n\r\n", errLongHead.Error()},
		"a close":                {"", "", "the api closed the connection"},
		"a close in the head":    {begin, "", "the api closed the connection"},
	} {
		t.Run(what, func(t *testing.T) {
			said := make(chan int, 1)
			server := newRawServer(t, overTCP, func(conn net.Conn, _ int) {
				n, err := conn.Write([]byte(c.first))
				for i := 0; c.then != "" && err == nil; i++ {
					text := c.then
					if strings.Contains(text, "%d") {
						text = fmt.Sprintf(text, i)
					}
					var more int
					more, err = conn.Write([]byte(text))
					n += more
				}
				_ = conn.Close()
				said <- n
			})
			caller := callerOf(t, "http://"+server.listener.Addr().String())
			r := caller.claimed(t, &ingest.Job{Method: "POST", Body: []byte("pay")})
			if !r.Sent || r.Status != 0 || r.Err == nil || r.Err.Error() != c.want {
				t.Errorf("%+v, want %s", r, c.want)
			}
			if n := await.Receive(t, "the server's end", said); n > 8<<20 {
				t.Errorf("%d bytes were read", n)
			}
		})
	}
}
