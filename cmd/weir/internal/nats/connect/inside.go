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
	"weir/cmd/weir/internal/config/environment"
)

// Whereabouts is the subject on which a server embedded in a weir describes itself, if it separates producers from
// operators.
const Whereabouts = "weir.gate.whereabouts"

// Inside is the description that an embedded server gives of itself. The zero value stands for any other server.
type Inside struct {
	OperatorCreds string `json:"operator_creds"` // path of the operators' credentials on the server's machine
	ReplyPrefix   string `json:"reply_prefix"`   // prefix of the subjects on which its producers receive replies
}

// insideWait bounds the request to Whereabouts. Other servers answer at once that there are no responders.
const insideWait = time.Second

// AskInside asks a server for its description. It returns the zero value if nothing answers or the request is not
// allowed: then the server is not embedded in a weir.
func AskInside(ctx context.Context, nc *nats.Conn, denied *Denials) Inside {
	ctx, cancel := context.WithTimeout(ctx, insideWait)
	defer cancel()
	ctx, _ = denied.Tolerate(ctx, Whereabouts) // tolerated for good, because the refusal may come after the wait
	var inside Inside
	if msg, err := nc.RequestWithContext(ctx, Whereabouts, nil); err != nil || json.Unmarshal(msg.Data, &inside) != nil {
		return Inside{}
	}
	return inside
}

// OperatorCreds is the file of the operators' credentials in the data directory of a weir with its own server.
const OperatorCreds = "operator.creds"

// mayOperate reports whether weir may use credentials that it finds on this machine: the settings have no credentials,
// and the server is on this machine.
func mayOperate(s *environment.Settings) bool {
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

// ownCredentials returns the credentials of the data directory, for a command that runs beside a weir with its own
// server. It returns nil if there are none, or if this user may not read them.
func ownCredentials(s *environment.Settings) nats.Option {
	if !mayOperate(s) {
		return nil
	}
	return Found(s, Inside{OperatorCreds: filepath.Join(s.DataDir, OperatorCreds)})
}

// Found returns the credentials of the file that an embedded server on this machine names. It returns nil if the
// settings have credentials, or if this user may not read the file. nats.go reads the file for each connection and does
// not send the key: the key signs the server's challenge.
func Found(s *environment.Settings, inside Inside) nats.Option {
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
