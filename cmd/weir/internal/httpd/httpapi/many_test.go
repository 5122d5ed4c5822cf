package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/nats/connect"
	"weir/deadletter"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// askedAPI returns an API on a real server without a weir.
func askedAPI(t *testing.T, js jetstream.JetStream) *API {
	t.Helper()
	c, err := config.Parse([]byte("apis: {}"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{
		Connection: &connect.Connection{Conn: js.Conn(), JetStream: js, Denied: &connect.Denials{}}, Config: func() *config.Config { return c },
		Settings: &environment.Settings{}, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// get answers a request as the mux would.
func (a *API) get(t *testing.T, path string, into any) {
	t.Helper()
	mux := http.NewServeMux()
	for _, r := range a.Routes() {
		mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, q *http.Request) { r.Serve(w, q, console.Actor{Role: console.Operator}) })
	}
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequestWithContext(await.Context(t, path), http.MethodGet, base+path, nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%s answers %d %s", path, answer.Code, answer.Body)
	}
	if err := json.Unmarshal(answer.Body.Bytes(), into); err != nil {
		t.Fatal(err)
	}
}

// TestPagesReadNoMoreThanTheyShow checks that a page of 100,000 letters reads about as many letters as it shows,
// wherever it is in the stream, and however few letters its filter selects.
func TestPagesReadNoMoreThanTheyShow(t *testing.T) {
	const letters, rare = 100_000, 20_000
	js := natstest.JetStream(t)
	if err := deadletter.EnsureStreams(t.Context(), deadletter.Options{
		JetStream: js, MaxAge: time.Hour, MaxBytes: 1 << 30, Replicas: 1, Log: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	for i := range letters {
		key := "often"
		if i%rare == 0 {
			key = "seldom"
		}
		msg := nats.NewMsg("weir.dead.sms.overflow." + key)
		msg.Header.Set(deadletter.HeaderReason, "overflow")
		msg.Header.Set(ingest.HeaderKey, key)
		msg.Data = []byte("x")
		if _, err := js.PublishMsgAsync(msg); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			await.Receive(t, "letters to be stored", js.PublishAsyncComplete())
		}
	}
	await.Receive(t, "the letters are stored", js.PublishAsyncComplete())
	a := askedAPI(t, js)
	for path, want := range map[string]int{
		"/dead": 100, "/dead?before=50000": 100, "/dead?limit=1000": 1000, "/dead?key=seldom": letters / rare, "/dead?key=seldom&before=50000": 3,
	} {
		read := js.Conn().Stats().InMsgs
		var page letterList
		a.get(t, path, &page)
		read = js.Conn().Stats().InMsgs - read
		if len(page.Letters) != want {
			t.Errorf("%s has %d letters, want %d", path, len(page.Letters), want)
		}
		if most := uint64(10*want + 1000); read > most {
			t.Errorf("%s read %d messages for %d letters", path, read, want)
		}
		t.Logf("%s: %d letters, %d messages", path, len(page.Letters), read)
	}
	var causes causeList
	a.get(t, "/dead/stats", &causes)
	if causes.Letters != letters || len(causes.Causes) != 1 {
		t.Errorf("the causes are of %d letters: %d", causes.Letters, len(causes.Causes))
	}
}

// TestSlowListenersAreCutOff checks that a listener that reads nothing is disconnected and delays no other. Without
// listeners the hub computes nothing.
func TestSlowListenersAreCutOff(t *testing.T) {
	h := &hub{listeners: map[*listener]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	h.stop = stop // as if the computation ran already
	slow, quick := h.join(console.Viewer), h.join(console.Operator)
	for i := range 2 * heldMessages {
		h.tell(message{name: "event", id: uint64(i + 1)})
		if got := await.Receive(t, "a message", quick.messages); got.id != uint64(i+1) {
			t.Fatalf("message %d is %d", i+1, got.id)
		}
	}
	await.Receive(t, "the slow one is cut off", slow.gone)
	h.leave(slow)
	if ctx.Err() != nil {
		t.Error("it ends while there is a listener")
	}
	h.leave(quick)
	if ctx.Err() == nil {
		t.Error("it goes on without listeners")
	}
	h.stop = func() {}
	for range mostListeners - forOperators {
		if h.join(console.Viewer) == nil {
			t.Fatal("a listener too few")
		}
	}
	if h.join(console.Viewer) != nil || h.join(console.Local) != nil {
		t.Error("viewers leave no room for operators")
	}
	for range forOperators {
		if h.join(console.Operator) == nil {
			t.Fatal("an operator too few")
		}
	}
	if h.join(console.Operator) != nil {
		t.Error("there are more listeners than may be")
	}
	h.close()
	if h.join(console.Operator) != nil {
		t.Error("a listener may join after the end")
	}
}
