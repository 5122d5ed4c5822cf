package config

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// natsURL reads one address, or several separated by commas. Its errors do not quote the text, which may hold a
// password.
func natsURL(text string) (Secret, error) {
	const fix = "write nats://host:4222, several with commas; the schemes are nats, tls, ws and wss"
	var shown []string
	for address := range strings.SplitSeq(text, ",") {
		address = strings.TrimSpace(address)
		if !strings.Contains(address, "://") {
			address = "nats://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Hostname() == "" || !isPort(u.Port(), 1) {
			return Secret{}, refuse(fix, "is not the address of a NATS server")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
			shown = append(shown, withoutCredentials(u))
		default:
			return Secret{}, refuse(fix, "has the unknown scheme %s", quote(u.Scheme))
		}
	}
	return Secret{text: text, shown: strings.Join(shown, ",")}, nil
}

// redisURL reads the address of a Redis server. Its errors do not quote the text, which may hold a password.
func redisURL(text string) (Secret, error) {
	const fix = "write redis://host:6379 or rediss://host:6379"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || !isPort(u.Port(), 1):
		return Secret{}, refuse(fix, "is not the address of a Redis server")
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return Secret{}, refuse(fix, "has the unknown scheme %s", quote(u.Scheme))
	}
	return Secret{text: text, shown: withoutCredentials(u)}, nil
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
	if err != nil || port == "" || !isPort(port, 0) || strings.ContainsAny(host, " /@") {
		return "", refuse(fix, "%s is no address to listen on", quote(text))
	}
	return text, nil
}

// IsLoopback reports whether only this machine can reach host:port. An empty host stands for every interface.
func IsLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && onThisMachine(host)
}

// onThisMachine reports whether traffic to host stays on this machine.
func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// isPort reports whether text is a port from least to 65535, or empty, which means the scheme's default.
func isPort(text string, least int) bool {
	n, err := strconv.Atoi(text)
	return text == "" || err == nil && n >= least && n <= 65535
}

// inboxPrefix reads the prefix of the subjects on which answers arrive. NATS allows no wildcard there.
func inboxPrefix(text string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`).MatchString(text) {
		return "", refuse("write tokens of letters, digits, '-' and '_' with dots between, as in _INBOX.worker",
			"%s is no prefix of subjects", quote(text))
	}
	return text, nil
}
