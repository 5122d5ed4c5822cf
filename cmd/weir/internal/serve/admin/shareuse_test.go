package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestUseIsAskedAside checks that a replica says which configuration it follows while its Redis does not answer: also
// while a move of shares asks for its use of an account.
func TestUseIsAskedAside(t *testing.T) {
	js := natstest.JetStream(t)
	asked, release := make(chan string, 1), make(chan struct{})
	stop, err := StartService(ServiceOptions{
		Conn: js.Conn(), Dispatcher: &dispatcher.Dispatcher{}, Instance: "one", Log: slog.New(slog.DiscardHandler),
		Config: func() ConfigState { return ConfigState{Seen: 7, Version: 7} },
		ShareUse: func(_ context.Context, account string, of *ConfigState) {
			asked <- account
			select {
			case <-release:
			case <-time.After(await.Patience):
				t.Error("the test does not go on")
			}
			of.Shares = map[string]int64{account: 60}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	c := &connect.Connection{Conn: js.Conn(), JetStream: js, At: "the test", Denied: &connect.Denials{}}
	question := func(body any) (s ConfigState) {
		if err := askFor(c, configSubject, marshal(body), answerWaits{await.Patience, await.Patience}, func(data []byte, wrong *operatorError) bool {
			if wrong != nil || json.Unmarshal(data, &s) != nil {
				t.Errorf("%s, %v", data, wrong)
			}
			return true
		}); err != nil {
			t.Error(err)
		}
		return s
	}
	use := make(chan ConfigState, 1)
	go func() { use <- question(useQuestion{"acme"}) }()
	if account := await.Receive(t, "the question about the use", asked); account != "acme" {
		t.Errorf("asked for %q", account)
	}
	if s := question(useQuestion{}); s.Version != 7 || len(s.Shares) > 0 {
		t.Errorf("the plain answer: %+v", s)
	}
	close(release)
	if s := await.Receive(t, "the use", use); s.Version != 7 || s.Shares["acme"] != 60 || s.Instance != "one" {
		t.Errorf("the answer with the use: %+v", s)
	}
}

// TestUseThatPanics checks that a question about the use of an account that crashes answers with an error, and that the
// replica goes on.
func TestUseThatPanics(t *testing.T) {
	js := natstest.JetStream(t)
	stop, err := StartService(ServiceOptions{
		Conn: js.Conn(), Dispatcher: &dispatcher.Dispatcher{}, Instance: "one", Log: slog.New(slog.DiscardHandler),
		Config:   func() ConfigState { return ConfigState{} },
		ShareUse: func(context.Context, string, *ConfigState) { panic("for the test") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	c := &connect.Connection{Conn: js.Conn(), JetStream: js, At: "the test", Denied: &connect.Denials{}}
	var wrong *operatorError
	if err := askFor(c, configSubject, marshal(useQuestion{"acme"}), answerWaits{await.Patience, await.Patience}, func(_ []byte, of *operatorError) bool {
		wrong = of
		return true
	}); err != nil || wrong == nil {
		t.Errorf("the answer has the error %v, %v", wrong, err)
	}
}

// TestFormerShareBeginsTheWaitAgain checks that a wait begins again if a replica counts by the former share once more: its
// site has lost the version that the move has stored. The wait begins with the first answer that has the new share,
// because the replica may have called by the former one until just before.
func TestFormerShareBeginsTheWaitAgain(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	const passes = 3600 * time.Millisecond
	begun := time.Now()
	var changed time.Time // when the replica said first that it counts by the new share
	former := false
	var mu sync.Mutex
	if _, err := js.Conn().Subscribe(configSubject, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		s := ConfigState{Instance: "one", Seen: 5, Version: 5, Shares: map[string]int64{"acme": 30}}
		switch now := time.Now(); {
		case !former || now.Sub(begun) < passes:
			former, s.Shares["acme"] = true, 60
		case changed.IsZero():
			changed = now
		}
		if err := m.Respond(marshal(s)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	c := &connect.Connection{Conn: js.Conn(), JetStream: js, At: "the test", Denied: &connect.Denials{}}
	k := Clearing{Account: "acme", Version: 5, Share: 30, Passes: passes, Say: func(string) {}}
	if err := k.AwaitClear(await.Context(t, "the wait"), c, t.Output()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if since := time.Since(changed); since < passes {
		t.Errorf("the wait ends %s after the replica counted by the new share, want %s", since, passes)
	}
}

// TestUnknownUseCountsFromTheChange checks that a wait for unknown use begins when the last replica that counts by the
// former share has stopped doing so. A replica that does not count the account may have been there long before.
func TestUnknownUseCountsFromTheChange(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	const gone = 3 * time.Second
	var asked, changed time.Time // the first question, and the first answer without a share
	var mu sync.Mutex
	for _, instance := range []string{"one", "two"} {
		if _, err := js.Conn().Subscribe(configSubject, func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			s, now := ConfigState{Instance: instance, Seen: 5, Version: 5}, time.Now()
			if instance == "two" {
				switch {
				case asked.IsZero():
					asked = now
					fallthrough
				case now.Sub(asked) < 2*gone:
					s.Shares = map[string]int64{"acme": 60}
				case changed.IsZero():
					changed = now
				}
			}
			if err := m.Respond(marshal(s)); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	c := &connect.Connection{Conn: js.Conn(), JetStream: js, At: "the test", Denied: &connect.Denials{}}
	k := Clearing{
		Account: "acme", Version: 5, Share: 30, Passes: time.Millisecond, Say: func(string) {},
		Gone: func() time.Duration { return gone },
	}
	if err := k.AwaitClear(await.Context(t, "the wait"), c, t.Output()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if since := time.Since(changed); since < gone {
		t.Errorf("the wait ends %s after the last replica counted by the former share, want %s", since, gone)
	}
}
