package environment

import (
	"net"
	"net/url"
	"regexp"
	"strings"

	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// natsURL reads one address, or several separated by commas. Its errors do not quote the text, which may hold a
// password.
func natsURL(text string) (secret.Value, error) {
	const fix = "write nats://host:4222, several with commas; the schemes are nats, tls, ws and wss"
	var shown []string
	for address := range strings.SplitSeq(text, ",") {
		address = strings.TrimSpace(address)
		if !strings.Contains(address, "://") {
			address = "nats://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Hostname() == "" || !grammar.IsPort(u.Port(), 1) {
			return secret.Value{}, problem.Refuse(fix, "is not the address of a NATS server")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
			shown = append(shown, withoutCredentials(u))
		default:
			return secret.Value{}, problem.Refuse(fix, "has the unknown scheme %s", problem.Quote(u.Scheme))
		}
	}
	return secret.New(text, strings.Join(shown, ",")), nil
}

// redisURL reads the address of a Redis server. Its errors do not quote the text, which may hold a password.
func redisURL(text string) (secret.Value, error) {
	const fix = "write redis://host:6379 or rediss://host:6379"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || !grammar.IsPort(u.Port(), 1):
		return secret.Value{}, problem.Refuse(fix, "is not the address of a Redis server")
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return secret.Value{}, problem.Refuse(fix, "has the unknown scheme %s", problem.Quote(u.Scheme))
	}
	return secret.New(text, withoutCredentials(u)), nil
}

// withoutCredentials returns an address without its user, password and query. NATS takes a user without a password as a
// token.
func withoutCredentials(u *url.URL) string {
	shown := u.Scheme + "://"
	if u.User != nil {
		shown += "***@"
	}
	shown += u.Host + u.Path
	if u.RawQuery != "" {
		shown += "?***"
	}
	return shown
}

// listenAddress reads host:port. An empty host means all interfaces. Port 0 means any free port.
func listenAddress(text string) (string, error) {
	const fix = "write host:port, as in 127.0.0.1:8480"
	host, port, err := net.SplitHostPort(text)
	if err != nil || port == "" || !grammar.IsPort(port, 0) || strings.ContainsAny(host, " /@") {
		return "", problem.Refuse(fix, "%s is no address to listen on", problem.Quote(text))
	}
	return text, nil
}

// inboxPrefix reads the prefix of the subjects on which answers arrive. NATS allows no wildcard there.
func inboxPrefix(text string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`).MatchString(text) {
		return "", problem.Refuse("write tokens of letters, digits, '-' and '_' with dots between, as in _INBOX.worker",
			"%s is no prefix of subjects", problem.Quote(text))
	}
	return text, nil
}
