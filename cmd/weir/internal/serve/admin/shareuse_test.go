package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher"
	"weir/ingest/await"
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
			<-release
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
