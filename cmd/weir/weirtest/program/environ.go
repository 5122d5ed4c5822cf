package program

import (
	"maps"
	"os"
	"sync"
	"testing"

	"weir/cmd/weir/internal/config/environment"
)

// AsWeir is an environment variable that makes this binary run as weir. Main sets it for the children that weir starts,
// because they inherit no variable that begins with WEIR_.
const AsWeir = "TEST_AS_WEIR"

// variables guards the process's environment while Settings reads settings from it.
var variables sync.Mutex

// Environ returns the environment for a child process.
func Environ() []string {
	variables.Lock()
	defer variables.Unlock()
	return os.Environ()
}

// Settings returns the settings that weir reads from env. It sets the variables only while it reads, so that tests
// can run side by side.
func Settings(t testing.TB, env map[string]string) *environment.Settings {
	t.Helper()
	variables.Lock()
	defer variables.Unlock()
	for name, text := range env {
		before, had := os.LookupEnv(name)
		if err := os.Setenv(name, text); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if had {
				_ = os.Setenv(name, before)
			} else {
				_ = os.Unsetenv(name)
			}
		}()
	}
	s, err := environment.Read()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ExternalSettings returns the settings of a worker with an external nats-server.
func ExternalSettings(t testing.TB, url, file, instance string, roles ...environment.Role) *environment.Settings {
	t.Helper()
	s := Settings(t, map[string]string{
		"WEIR_NATS_URL": url, "WEIR_CONFIG": file, "WEIR_REPLICAS": "1", "WEIR_INSTANCE": instance, "WEIR_HTTP_LISTEN": "127.0.0.1:0",
	})
	if len(roles) > 0 {
		s.Roles = roles
	}
	return s
}

// ExternalSettingsWith returns ExternalSettings with further variables.
func ExternalSettingsWith(t *testing.T, url, file string, env map[string]string) *environment.Settings {
	t.Helper()
	all := map[string]string{"WEIR_NATS_URL": url, "WEIR_CONFIG": file, "WEIR_REPLICAS": "1", "WEIR_HTTP_LISTEN": ""}
	maps.Copy(all, env)
	return Settings(t, all)
}

// WorkerSettings returns ExternalSettings for the user with the role worker in accounts.conf.
func WorkerSettings(t testing.TB, url, file, instance string, roles ...environment.Role) *environment.Settings {
	t.Helper()
	s := ExternalSettings(t, url, file, instance, roles...)
	s.NATSInbox = "_INBOX.worker"
	return s
}
