package environment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// password is the secret that no output of settings shows.
const password = "hunter2"

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// clearEnvironment removes every WEIR_ variable for one test, and changes to an empty directory.
func clearEnvironment(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, pair := range os.Environ() {
		if name, text, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "WEIR_") {
			t.Setenv(name, text) // so that it is restored after the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSettingsDefaults(t *testing.T) {
	clearEnvironment(t)
	s, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if s.Instance == again.Instance || len(s.Instance) < 10 || !strings.HasPrefix(s.Instance, host[:1]) {
		t.Errorf("instances are called %q and %q", s.Instance, again.Instance)
	}
	s.Instance = ""
	want := &Settings{
		NATSInbox: "_INBOX", NATSListen: "127.0.0.1:4222", NATSAuth: AuthOperators, DataDir: "weir-data", StateDir: "weir-data/state", Durability: DurabilityAlways, Replicas: 1, Partitions: 8,
		Roles: []Role{RoleDispatch, RoleIngest}, HTTPListen: "127.0.0.1:8480", LogFormat: LogText,
		ShutdownTimeout: 30 * time.Second,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("defaults are\n%+v\nwant\n%+v", s, want)
	}
	if !s.Embedded() || !s.Has(RoleIngest) || !s.Has(RoleDispatch) {
		t.Error("the default is not everything in one process")
	}
}

func TestSettingsRead(t *testing.T) {
	clearEnvironment(t)
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "x")
	for name, text := range map[string]string{
		"WEIR_CONFIG": "other.yaml", "WEIR_NATS_URL": "nats://a:4222, tls://b", "WEIR_NATS_CREDS": file, "WEIR_NATS_CA": file,
		"WEIR_NATS_LISTEN": ":0", "WEIR_NATS_AUTH": "required", "WEIR_NATS_CONNECTIONS": "500", "WEIR_DATA_DIR": "/data", "WEIR_DURABILITY": "interval",
		"WEIR_REDIS_URL": "rediss://:hunter2@redis/1?db=2", "WEIR_REPLICAS": "", "WEIR_PARTITIONS": "16",
		"WEIR_ROLES": " dispatch ", "WEIR_INSTANCE": "weir-0.weir", "WEIR_HTTP_LISTEN": "", "WEIR_LOG_LEVEL": "DEBUG",
		"WEIR_NATS_INBOX": "_INBOX.worker", "WEIR_HTTP_TOKEN": "0123456789abcdef",
		"WEIR_LOG_FORMAT": "json", "WEIR_SHUTDOWN_TIMEOUT": "1m",
		"WEIR_SERVICE_HOST": "10.0.0.1", "WEIR_PORT_4222_TCP_ADDR": "10.0.0.1", "WEIR_OTHER": "x",
	} {
		t.Setenv(name, text)
	}
	s, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	want := &Settings{
		Config: "other.yaml", NATSURL: secret.New("nats://a:4222, tls://b", "nats://a:4222,tls://b"), NATSCreds: secret.New(file, ""),
		NATSCA: file, NATSInbox: "_INBOX.worker", HTTPToken: secret.New("0123456789abcdef", ""), NATSListen: ":0", NATSAuth: AuthRequired, NATSConnections: 500, DataDir: "/data", StateDir: "/data/state", Durability: DurabilityInterval,
		RedisURL: secret.New("rediss://:hunter2@redis/1?db=2", "rediss://***@redis/1?***"), Replicas: 3, Partitions: 16,
		Roles: []Role{RoleDispatch}, Instance: "weir-0.weir", LogLevel: slog.LevelDebug, LogFormat: LogJSON,
		ShutdownTimeout: time.Minute,
		Warnings:        []problem.Problem{{Path: "WEIR_OTHER", Message: "there is no such variable", Fix: "remove it"}},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("settings are\n%#v\nwant\n%#v", s, want)
	}
	if s.Embedded() || s.Has(RoleIngest) {
		t.Error("an external cluster or the roles are not seen")
	}
}

// TestSettingsStateDir checks where state outside the store is kept: in the data directory, or nowhere if no data
// directory is needed.
func TestSettingsStateDir(t *testing.T) {
	for _, c := range []struct{ url, data, state, want string }{
		{"", "", "", "weir-data/state"},
		{"", "/data", "", "/data/state"},
		{"nats://a", "", "", ""},
		{"nats://a", "/data", "", "/data/state"},
		{"nats://a", "/data", "/state", "/state"},
	} {
		clearEnvironment(t)
		t.Setenv("WEIR_NATS_URL", c.url)
		t.Setenv("WEIR_DATA_DIR", c.data)
		t.Setenv("WEIR_STATE_DIR", c.state)
		if s, err := Read(); err != nil || s.StateDir != c.want {
			t.Errorf("with %+v the state goes to %q, %v", c, s.StateDir, err)
		}
	}
}

func TestSettingsFindTheFile(t *testing.T) {
	clearEnvironment(t)
	writeFile(t, DefaultFile, "apis: {}")
	if s, err := Read(); err != nil || s.Config != DefaultFile {
		t.Errorf("weir.yaml is here and the setting is %+v, %v", s, err)
	}
}

// TestSettingsThatExpose checks that an HTTP interface which other machines can reach needs a token. It also checks the
// warnings of an embedded server that they can reach, and of one without a dispatcher.
func TestSettingsThatExpose(t *testing.T) {
	const secret = "0123456789abcdef"
	for _, c := range []struct {
		name, text, token, url string
		refused, warned        string
	}{
		{name: "WEIR_HTTP_LISTEN", text: "0.0.0.0:8480", refused: "set WEIR_HTTP_TOKEN"},
		{name: "WEIR_HTTP_LISTEN", text: ":8480", refused: "without authentication"},
		{name: "WEIR_HTTP_LISTEN", text: "weir.example.com:0", refused: "without authentication"},
		{name: "WEIR_HTTP_LISTEN", text: "0.0.0.0:8480", token: secret},
		{name: "WEIR_HTTP_LISTEN", text: "[::1]:8480"},
		{name: "WEIR_HTTP_LISTEN", text: "localhost:8480"},
		{name: "WEIR_HTTP_LISTEN", text: ""},
		{name: "WEIR_NATS_LISTEN", text: "0.0.0.0:4222", warned: "they can read everything and submit jobs, and spend money"},
		{name: "WEIR_NATS_LISTEN", text: ":4222", warned: "listen on 127.0.0.1"},
		{name: "WEIR_NATS_LISTEN", text: "0.0.0.0:4222", url: "nats://a"},
		{name: "WEIR_NATS_LISTEN", text: "127.0.0.1:0"},
		{name: "WEIR_ROLES", text: "ingest", warned: "none is called unless"},
		{name: "WEIR_ROLES", text: "ingest", url: "nats://a"},
		{name: "WEIR_ROLES", text: "dispatch"},
	} {
		t.Run(c.name+"="+c.text+c.url, func(t *testing.T) {
			clearEnvironment(t)
			t.Setenv(c.name, c.text)
			t.Setenv("WEIR_HTTP_TOKEN", c.token)
			t.Setenv("WEIR_NATS_URL", c.url)
			s, err := Read()
			if err == nil {
				err = s.Guarded(nil)
			}
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("not refused with %q: %v", c.refused, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.warned == "" && len(s.Warnings) > 0:
				t.Errorf("warned of %v", s.Warnings)
			case c.warned != "" && (len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0].String(), c.warned)):
				t.Errorf("not warned of %q: %v", c.warned, s.Warnings)
			}
		})
	}
}

// TestSettingsTellEveryProblem checks that all problems are reported at once, and that no message shows a password.
func TestSettingsTellEveryProblem(t *testing.T) {
	clearEnvironment(t)
	for name, text := range map[string]string{
		"WEIR_NATS_URL": "http://u:hunter2@a:4222", "WEIR_NATS_CREDS": "/nowhere/hunter2", "WEIR_NATS_CA": "/nowhere/ca.pem",
		"WEIR_NATS_LISTEN": "4222", "WEIR_DURABILITY": "never", "WEIR_REDIS_URL": "redis://:hunter2@:6379",
		"WEIR_REPLICAS": "6", "WEIR_PARTITIONS": "many", "WEIR_ROLES": "ingest,work", "WEIR_INSTANCE": "a b",
		"WEIR_HTTP_LISTEN": "localhost:99999", "WEIR_LOG_LEVEL": "loud", "WEIR_LOG_FORMAT": "xml",
		"WEIR_NATS_INBOX": "_INBOX.>", "WEIR_HTTP_TOKEN": "hunter2",
		"WEIR_SHUTDOWN_TIMEOUT": "30", "WEIR_REDISURL": "redis://redis",
	} {
		t.Setenv(name, text)
	}
	_, err := Read()
	var all *problem.Errors
	if !errors.As(err, &all) {
		t.Fatalf("the error is %v", err)
	}
	want := []string{
		`WEIR_ROLES: "work" is unknown: it can be dispatch or ingest`,
		`WEIR_INSTANCE: "a b" cannot be a replica's name: write letters, digits, '-', '_' and '.' only, at most 128`,
		`WEIR_SHUTDOWN_TIMEOUT: "30" has no unit: write 30s, 10m, 24h or 30d`,
		`WEIR_LOG_LEVEL: "loud" is unknown: it can be debug, error, info or warn`,
		`WEIR_LOG_FORMAT: "xml" is unknown: it can be json or text`,
		`WEIR_NATS_URL: has the unknown scheme "http": write nats://host:4222, several with commas; the schemes are nats, tls, ws and wss`,
		`WEIR_NATS_CREDS: the file cannot be read: no such file or directory: name a file that this user may read`,
		`WEIR_NATS_CA: the file cannot be read: no such file or directory: name a file that this user may read`,
		`WEIR_NATS_INBOX: "_INBOX.>" is no prefix of subjects: write tokens of letters, digits, '-' and '_' with dots between, as in _INBOX.worker`,
		`WEIR_REPLICAS: 6 is out of range: write a whole number from 1 to 5`,
		`WEIR_PARTITIONS: "many" is not a whole number: write a whole number from 1 to 256`,
		`WEIR_NATS_LISTEN: "4222" is no address to listen on: write host:port, as in 127.0.0.1:8480`,
		`WEIR_DURABILITY: "never" is unknown: it can be always or interval`,
		`WEIR_REDIS_URL: is not the address of a Redis server: write redis://host:6379 or rediss://host:6379`,
		`WEIR_HTTP_LISTEN: "localhost:99999" is no address to listen on: write host:port, as in 127.0.0.1:8480`,
		`WEIR_HTTP_TOKEN: is no bearer token: write 16 to 256 letters, digits and -._~+/=, as openssl rand -hex 32 makes them, or ${file:/path}`,
		`WEIR_REDISURL: there is no such variable: did you mean WEIR_REDIS_URL?`,
	}
	got := strings.Split(err.Error(), "\n")
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(err.Error(), password) {
		t.Error("a secret is shown")
	}
}

func TestEmbeddedServerKeepsOneReplica(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("WEIR_REPLICAS", "3")
	if _, err := Read(); err == nil || !strings.Contains(err.Error(), "the embedded server is one server") {
		t.Errorf("three replicas of an embedded server: %v", err)
	}
}

// TestSettingsShowNoSecret checks that settings show no secret, in whichever way they are printed.
func TestSettingsShowNoSecret(t *testing.T) {
	clearEnvironment(t)
	creds := filepath.Join(t.TempDir(), password+".creds")
	writeFile(t, creds, "x")
	t.Setenv("WEIR_NATS_URL", "nats://"+password+"@a")
	t.Setenv("WEIR_REDIS_URL", "redis://:"+password+"@b")
	t.Setenv("WEIR_NATS_CREDS", creds)
	t.Run("context", func(t *testing.T) {
		t.Setenv("XDG_CONFIG_HOME", t.TempDir())
		contexts := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context")
		if err := os.MkdirAll(contexts, 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(contexts, "c.json"),
			strings.ReplaceAll(`{"url": "nats://S@a", "user": "S", "password": "S", "token": "S"}`, "S", password))
		t.Setenv("WEIR_NATS_CONTEXT", "c")
		t.Setenv("WEIR_NATS_URL", "")
		t.Setenv("WEIR_NATS_CREDS", "")
		s, err := Read()
		if err != nil || s.NATSSignIn.Password.Reveal() != password {
			t.Fatal(s, err)
		}
		showsNothing(t, s)
	})
	s, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if s.NATSCreds.String() != "***" || s.NATSCreds.Reveal() != creds || s.NATSURL.String() != "nats://***@a" {
		t.Errorf("credentials are shown as %s, the address as %s", s.NATSCreds, s.NATSURL)
	}
	showsNothing(t, s)
}

// showsNothing prints settings in every way, and fails the test if the text has a secret.
func showsNothing(t *testing.T, s *Settings) {
	t.Helper()
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("settings", "all", s, "one", s.NATSURL, "value", *s)
	for _, shown := range []string{
		string(encoded), logged.String(), fmt.Sprint(s.Redacted()),
		fmt.Sprintf("%v %+v %#v %s %q %x", *s, *s, *s, s.NATSURL, s.RedisURL, s.NATSCreds),
	} {
		if strings.Contains(shown, password) || strings.Contains(shown, fmt.Sprintf("%x", password)) {
			t.Errorf("a secret is shown in %s", shown)
		}
	}
}

// TestVariablesAreDecoded checks that envconfig decodes each variable, and that all wrong ones are reported at once,
// each by its name.
func TestVariablesAreDecoded(t *testing.T) {
	clearEnvironment(t)
	for name, value := range map[string]string{"WEIR_MEMORY": "much", "WEIR_SHUTDOWN_TIMEOUT": "soon", "WEIR_ROLES": "cook", "WEIR_LOG_LEVEL": "loud"} {
		t.Setenv(name, value)
	}
	_, err := Read()
	var wrong *problem.Errors
	if !errors.As(err, &wrong) || len(wrong.Problems) != 4 {
		t.Fatalf("four wrong variables are told as %v", err)
	}
	for _, p := range wrong.Problems {
		if p.Path == "" || p.Fix == "" {
			t.Errorf("%+v names no variable or no fix", p)
		}
	}
}

// TestWhereSitesAre checks how WEIR_SITES is read and shown.
func TestWhereSitesAre(t *testing.T) {
	t.Setenv("WEIR_NATS_USER", "me")
	t.Setenv("WEIR_NATS_PASSWORD", "secret")
	t.Setenv("WEIR_SITES", "us=nats://joe:pass@us:4222, eu=europe")
	s, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Sites) != 2 || s.Sites[0].Site != "eu" || s.Sites[1].At.Reveal() != "nats://joe:pass@us:4222" {
		t.Errorf("%v", s.Sites)
	}
	if shown := shownSites(s.Sites); shown != "eu=europe,us=nats://***@us:4222" {
		t.Errorf("shown as %s", shown)
	}
	if _, err := ReadOf(s.Sites[0]); err == nil || !strings.Contains(err.Error(), "europe.json") {
		t.Errorf("the context of eu: %v", err)
	}
	for _, wrong := range []string{"eu", "eu=a,eu=b", "=a", "eu=ftp://a", "eu=joe:pass@eu:4222", "eu=pass@eu"} {
		t.Setenv("WEIR_SITES", wrong)
		if _, err := Read(); err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
