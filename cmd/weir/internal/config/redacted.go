package config

import (
	"log/slog"
	"strconv"
	"strings"
)

// Setting is one variable in a form that may be shown.
type Setting struct{ Name, Value string }

// Redacted lists the settings by their variables, secrets hidden.
func (s *Settings) Redacted() []Setting {
	roles := make([]string, len(s.Roles))
	for i, r := range s.Roles {
		roles[i] = string(r)
	}
	memory := ""
	if s.Memory != 0 {
		memory = FormatSize(s.Memory)
	}
	connections := ""
	if s.NATSConnections > 0 {
		connections = strconv.Itoa(s.NATSConnections)
	}
	return []Setting{
		{"WEIR_CONFIG", s.Config},
		{"WEIR_NATS_URL", s.NATSURL.String()},
		{"WEIR_NATS_CONTEXT", s.NATSContext},
		{"WEIR_NATS_CREDS", s.NATSCreds.String()},
		{"WEIR_NATS_NKEY", s.NATSSignIn.Nkey.String()},
		{"WEIR_NATS_USER", s.NATSSignIn.User.String()},
		{"WEIR_NATS_PASSWORD", s.NATSSignIn.Password.String()},
		{"WEIR_NATS_CERT", s.NATSSignIn.Cert},
		{"WEIR_NATS_KEY", s.NATSSignIn.Key},
		{"WEIR_NATS_CA", s.NATSCA},
		{"WEIR_NATS_INBOX", s.NATSInbox},
		{"WEIR_NATS_LISTEN", s.NATSListen},
		{"WEIR_NATS_AUTH", string(s.NATSAuth)},
		{"WEIR_NATS_CONNECTIONS", connections},
		{"WEIR_DATA_DIR", s.DataDir},
		{"WEIR_STATE_DIR", s.StateDir},
		{"WEIR_DURABILITY", string(s.Durability)},
		{"WEIR_REDIS_URL", s.RedisURL.String()},
		{"WEIR_REPLICAS", strconv.Itoa(s.Replicas)},
		{"WEIR_PARTITIONS", strconv.Itoa(s.Partitions)},
		{"WEIR_ROLES", strings.Join(roles, ",")},
		{"WEIR_INSTANCE", s.Instance},
		{"WEIR_HTTP_LISTEN", s.HTTPListen},
		{"WEIR_HTTP_TOKEN", s.HTTPToken.String()},
		{"WEIR_SECRETS", strings.Join(s.Secrets, ",")},
		{"WEIR_LOG_LEVEL", strings.ToLower(s.LogLevel.String())},
		{"WEIR_LOG_FORMAT", string(s.LogFormat)},
		{"WEIR_MEMORY", memory},
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
