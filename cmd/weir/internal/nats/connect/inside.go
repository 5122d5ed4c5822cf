package connect

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"weir/cmd/weir/internal/config"
)

// Whereabouts is the subject on which the server embedded in a weir describes itself, if it distinguishes producers
// from operators.
const Whereabouts = "weir.gate.whereabouts"

// Inside is that description. The zero value stands for any other server.
type Inside struct {
	OperatorCreds string `json:"operator_creds"` // path of the operators' credentials on its machine
	ReplyPrefix   string `json:"reply_prefix"`   // prefix of the subjects on which its producers receive replies
}

// insideWait bounds the question. Other servers report at once that nothing answers it.
const insideWait = time.Second

// AskInside asks a server what it is. If nothing answers, or the question is not allowed, the server is not embedded in
// a weir.
func AskInside(ctx context.Context, nc *nats.Conn, denied *Denials) Inside {
	ctx, cancel := context.WithTimeout(ctx, insideWait)
	defer cancel()
	ctx, _ = denied.Tolerate(ctx, Whereabouts) // for good: the refusal may come after the wait
	var inside Inside
	if msg, err := nc.RequestWithContext(ctx, Whereabouts, nil); err != nil || json.Unmarshal(msg.Data, &inside) != nil {
		return Inside{}
	}
	return inside
}

// OperatorCreds is the file of the operators' credentials in the data directory of a weir with its own server.
const OperatorCreds = "operator.creds"

// mayOperate reports whether found credentials may be used: none are set, and the server is on this machine.
func mayOperate(s *config.Settings) bool {
	if s.SignsIn() {
		return false
	}
	if s.Embedded() {
		return true
	}
	for _, address := range strings.Split(s.NATSURL.Reveal(), ",") {
		u, err := url.Parse(address)
		if err != nil || u.User != nil {
			return false
		}
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// ownCredentials returns those of the data directory, for a command beside a weir with its own server; nil if there are
// none, or this user may not read them.
func ownCredentials(s *config.Settings) nats.Option {
	if !mayOperate(s) {
		return nil
	}
	return Found(s, Inside{OperatorCreds: filepath.Join(s.DataDir, OperatorCreds)})
}

// Found returns the credentials that an embedded server on this machine names; nil if the settings have some, or this
// user may not read them. They are read for each connection, and never sent: they sign the server's challenge.
func Found(s *config.Settings, inside Inside) nats.Option {
	if inside.OperatorCreds == "" || !mayOperate(s) {
		return nil
	}
	if info, err := os.Stat(inside.OperatorCreds); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	option, err := nats.NkeyOptionFromSeed(inside.OperatorCreds)
	if err != nil {
		return nil
	}
	return option
}
