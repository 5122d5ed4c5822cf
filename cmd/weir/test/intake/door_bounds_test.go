package intake

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/web"
	"weir/ingest/await"
)

// TestDoorIsBounded: weir answers questions while 1,024 posts wait for bodies that do not come. A client that withholds
// its body gets 408 in the end, and then jobs are accepted again. The 503 for one post too many is tested in package
// door, with a longer wait for bodies: a busy machine needs all of these seconds to open the connections.
func TestDoorIsBounded(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 100}\n")
	const most = 1024
	addr := r.Worker.HTTPAddr()
	var held []heldPost
	for range most {
		c, err := net.DialTimeout("tcp", addr, weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprintf(c, "POST /v1/jobs/pay/slow HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", addr); err != nil {
			t.Fatal(err)
		}
		held = append(held, heldPost{c, bufio.NewReader(c)})
	}
	for i, c := range held { // a post that waits for one to begin would take its place
		if answer := c.answer(t, i); answer.StatusCode != http.StatusContinue {
			t.Fatalf("post %d is answered %d before its body is asked for", i, answer.StatusCode)
		}
	}
	if status, _ := r.HTTP().Say("GET", "/api/v1/apis/pay/keys", "", ""); status != http.StatusOK {
		t.Errorf("a question is answered %d", status)
	}
	for i, c := range held {
		answer := c.answer(t, i)
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusRequestTimeout {
			t.Fatalf("post %d is answered %d %s", i, answer.StatusCode, text)
		}
		_ = answer.Body.Close()
	}
	if p := post(t, addr, "pay/k", []byte("x"), nat("Nats-Msg-Id", "after")); p.status != http.StatusAccepted {
		t.Errorf("afterwards a post is %+v", p)
	}
	if status, answer := r.HTTP().Say("GET", "/v1/jobs/pay/slow", "", ""); status != http.StatusNotFound {
		t.Errorf("what was told 408 is kept: %d %s", status, answer)
	}
}

// heldPost is a post whose body does not come.
type heldPost struct {
	net.Conn
	from *bufio.Reader
}

// answer reads the next answer to the post of that number. Its body is the caller's to close.
func (h heldPost) answer(t *testing.T, number int) *http.Response {
	t.Helper()
	if err := h.SetReadDeadline(time.Now().Add(weirtest.Patience)); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(h.from, nil)
	if err != nil {
		t.Fatalf("post %d has no answer: %v", number, err)
	}
	return answer
}

// TestTenThousandPosts: over connections that are kept, each job once.
func TestTenThousandPosts(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/h, capacity: 100}\n")
	addr := r.Worker.HTTPAddr()
	const posts, clients = 10_000, 64
	before := web.DoorConnections.Load()
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for i := c; i < posts; i += clients {
				id := strconv.Itoa(i)
				if p := post(t, addr, "pay/"+url.PathEscape("k/"+strconv.Itoa(i/50)), []byte(id), nat("Idempotency-Key", id)); p.status != 202 || p.Job != id || p.Duplicate {
					t.Errorf("job %s: %+v", id, p)
					return
				}
			}
		})
	}
	await.Return(t, "all posts", group.Wait)
	if made := web.DoorConnections.Load() - before; made > 2*clients {
		t.Errorf("%d connections were made", made)
	}
	r.Eventually("all jobs", func() bool { return r.Store().Waiting("pay")+len(r.API.All()) >= posts })
	if text := r.HTTP().Get("/metrics"); !strings.Contains(text, `weir_http_posts_total{code="202"} 10000`) || !strings.Contains(text, `weir_jobs_accepted_total{api="pay"} 10000`) {
		t.Error("they are not counted")
	}
}
