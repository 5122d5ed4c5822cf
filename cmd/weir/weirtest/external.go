package weirtest

import (
	"testing"

	"weir/cmd/weir/internal/config"
)

// ExternalSettings returns the settings of a worker with an external nats-server.
func ExternalSettings(t testing.TB, url, file, instance string, roles ...config.Role) *config.Settings {
	t.Helper()
	s := settingsOf(t, map[string]string{
		"WEIR_NATS_URL": url, "WEIR_CONFIG": file, "WEIR_REPLICAS": "1", "WEIR_INSTANCE": instance, "WEIR_HTTP_LISTEN": "127.0.0.1:0",
	})
	if len(roles) > 0 {
		s.Roles = roles
	}
	return s
}
