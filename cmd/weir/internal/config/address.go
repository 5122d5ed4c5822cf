package config

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Secret is a setting that must not be printed: a path of credentials, or an address that may carry a password. It
// shows itself only when revealed.
type Secret struct {
	text string
	// shown stands for the text in messages: an address without its credentials. Empty: nothing is shown.
	shown string
}

// Reveal returns the setting itself.
func (s Secret) Reveal() string { return s.text }

// IsSet says whether it is there at all.
func (s Secret) IsSet() bool { return s.text != "" }

// String shows an address without its credentials, *** for anything else that is set.
func (s Secret) String() string {
	if s.text != "" && s.shown == "" {
		return "***"
	}
	return s.shown
}

// GoString shows the same.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalJSON writes the same.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// LogValue logs the same.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// natsURL reads one address or several with commas. No message quotes it.
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

// redisURL reads the address of a Redis. No message quotes it.
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

// withoutCredentials writes an address without user, password and query: a lone user is NATS's token.
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

// listenAddress reads host:port; the host may be empty for all interfaces, the port 0 for any that is free.
func listenAddress(text string) (string, error) {
	const fix = "write host:port, as in 127.0.0.1:8480"
	host, port, err := net.SplitHostPort(text)
	if err != nil || port == "" || !isPort(port, 0) || strings.ContainsAny(host, " /@") {
		return "", refuse(fix, "%s is no address to listen on", quote(text))
	}
	return text, nil
}

// isPort says whether text is a port of at least least, or empty for the scheme's own.
func isPort(text string, least int) bool {
	n, err := strconv.Atoi(text)
	return text == "" || err == nil && n >= least && n <= 65535
}

// Setting is one variable as it may be shown.
type Setting struct{ Name, Value string }

// Redacted lists the settings by their variables, secrets hidden.
func (s *Settings) Redacted() []Setting {
	roles := make([]string, len(s.Roles))
	for i, r := range s.Roles {
		roles[i] = string(r)
	}
	return []Setting{
		{"WEIR_CONFIG", s.Config},
		{"WEIR_NATS_URL", s.NATSURL.String()},
		{"WEIR_NATS_CREDS", s.NATSCreds.String()},
		{"WEIR_NATS_CA", s.NATSCA},
		{"WEIR_NATS_LISTEN", s.NATSListen},
		{"WEIR_DATA_DIR", s.DataDir},
		{"WEIR_DURABILITY", string(s.Durability)},
		{"WEIR_REDIS_URL", s.RedisURL.String()},
		{"WEIR_REPLICAS", strconv.Itoa(s.Replicas)},
		{"WEIR_PARTITIONS", strconv.Itoa(s.Partitions)},
		{"WEIR_ROLES", strings.Join(roles, ",")},
		{"WEIR_INSTANCE", s.Instance},
		{"WEIR_HTTP_LISTEN", s.HTTPListen},
		{"WEIR_LOG_LEVEL", strings.ToLower(s.LogLevel.String())},
		{"WEIR_LOG_FORMAT", string(s.LogFormat)},
		{"WEIR_SHUTDOWN_TIMEOUT", FormatDuration(s.ShutdownTimeout)},
	}
}

// LogValue logs the settings, secrets hidden.
func (s *Settings) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, setting := range s.Redacted() {
		attrs = append(attrs, slog.String(setting.Name, setting.Value))
	}
	return slog.GroupValue(attrs...)
}
