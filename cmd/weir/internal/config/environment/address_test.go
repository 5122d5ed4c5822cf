package environment

import (
	"fmt"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/secret"
)

func TestAddresses(t *testing.T) {
	type parsed struct{ text, want, refused string }
	check := func(parse func(string) (string, error), cases []parsed) {
		t.Helper()
		for _, c := range cases {
			got, err := parse(c.text)
			switch {
			case c.refused == "" && (err != nil || got != c.want):
				t.Errorf("%q is %q (%v), want %q", c.text, got, err, c.want)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("%q is %q with %v, want the message %q", c.text, got, err, c.refused)
			}
		}
	}
	shown := func(parse func(string) (secret.Value, error)) func(string) (string, error) {
		return func(text string) (string, error) {
			s, err := parse(text)
			if err == nil && s.Reveal() != text {
				err = fmt.Errorf("reveals %q", s.Reveal())
			}
			return s.String(), err
		}
	}
	check(shown(natsURL), []parsed{
		{text: "nats://127.0.0.1:4222", want: "nats://127.0.0.1:4222"},
		{text: "localhost", want: "nats://localhost"},
		{text: "nats://user:hunter2@a,nats://hunter2@b", want: "nats://***@a,nats://***@b"},
		{text: "wss://a/path?token=hunter2", want: "wss://a/path?***"},
		{text: "redis://a", refused: "unknown scheme"},
		{text: "nats://", refused: "is not the address"},
		{text: "nats://a,", refused: "is not the address"},
		{text: "nats://a:0", refused: "is not the address"},
		{text: "nats://u:hunter2@a b", refused: "is not the address"},
	})
	check(shown(redisURL), []parsed{
		{text: "redis://localhost:6379/0", want: "redis://localhost:6379/0"},
		{text: "rediss://user:hunter2@a", want: "rediss://***@a"},
		{text: "localhost:6379", refused: "is not the address"},
		{text: "http://a", refused: "unknown scheme"},
		{text: "redis://:hunter2@", refused: "is not the address"},
	})
	check(listenAddress, []parsed{
		{text: "127.0.0.1:8480", want: "127.0.0.1:8480"},
		{text: ":0", want: ":0"},
		{text: "[::1]:80", want: "[::1]:80"},
		{text: "localhost", refused: "is no address"},
		{text: "localhost:", refused: "is no address"},
		{text: "localhost:http", refused: "is no address"},
		{text: "::1:80", refused: "is no address"},
		{text: "http://a:80", refused: "is no address"},
	})
}
