package config

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Settings are what the environment says about this process.
type Settings struct {
	Config          string // path of the configuration file, empty for none
	NATSContext     string // name of a context of the nats command, empty: none. Its values are in the fields below
	NATSURL         Secret // empty: a server runs inside the process
	NATSCreds       Secret // path of a credentials file
	NATSSignIn      SignIn
	NATSCA          string // path of a CA file
	NATSInbox       string // prefix of the subjects on which answers arrive: _INBOX unless set
	NATSListen      string // host:port of the embedded server
	NATSAuth        NATSAuth
	NATSConnections int // of producers to the embedded server at a time, 0: as many as memory allows
	DataDir         string
	StateDir        string // directory for state kept outside the store, empty: none
	Durability      Durability
	RedisURL        Secret   // empty: limits are counted in the process
	Replicas        int      // of streams and key-value buckets: 1 to 5, 1 when embedded
	Partitions      int      // of an api's queue: 1 to 256
	Roles           []Role   // at least one, sorted
	Instance        string   // this replica's name: letters, digits, '-', '_' and '.', at most 128
	HTTPListen      string   // host:port, empty for none
	HTTPToken       Secret   // that a request must bear; required if other machines can connect
	Secrets         []string // allowed in a configuration from NATS: names of variables, clean paths of directories or files
	LogLevel        slog.Level
	LogFormat       LogFormat
	Memory          int64         // bytes that the process may hold resident, 0: as much as it finds to be allowed
	ShutdownTimeout time.Duration // 0 to 1h

	// Restored and Moved are an operator's statements about this start, given by flags: the store was restored from a
	// backup, or is the store of the stopped weir in another place. Counted says that limits continue with what a
	// restored store has counted.
	Restored, Moved, Counted bool

	ofContext map[string]string // variable → the field of the context that replaces it

	// Warnings are settings that are allowed and probably not meant.
	Warnings []Problem
}

// NATSAuth says which clients the embedded server admits.
type NATSAuth string

const (
	// AuthOperators admits all clients, to publish jobs and to read; everything else requires the operators'
	// credentials.
	AuthOperators NATSAuth = "operators"
	// AuthOpen admits all clients, as operators.
	AuthOpen NATSAuth = "open"
	// AuthRequired admits only clients with credentials of the data directory.
	AuthRequired NATSAuth = "required"
)

// lets says what a connection without credentials can do.
func (a NATSAuth) lets() string {
	if a == AuthOpen {
		return "read and delete every job"
	}
	return "read everything and submit jobs"
}

// Durability says when the embedded server's writes are on disk.
type Durability string

const (
	// DurabilityAlways means on disk before the receipt.
	DurabilityAlways Durability = "always"
	// DurabilityInterval means on disk every second: a power cut may lose that second.
	DurabilityInterval Durability = "interval"
)

// Role is a part of the work that a replica does.
type Role string

// The roles.
const (
	RoleDispatch Role = "dispatch"
	RoleIngest   Role = "ingest"
)

// LogFormat is how log lines are written.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// LeastMemory is the least with which weir can run, with the embedded server and small bodies.
const LeastMemory = 96 << 20

// DefaultFile is the configuration file that is read if none is named and it exists.
const DefaultFile = "weir.yaml"

// Embedded reports whether the NATS server runs inside the process.
func (s *Settings) Embedded() bool { return !s.NATSURL.IsSet() }

// Has reports whether this replica has a role.
func (s *Settings) Has(r Role) bool { return slices.Contains(s.Roles, r) }

// environment holds the variables as envconfig decodes them. Variables that a context of the nats command may replace
// stay text until it is known. No variable except WEIR_HTTP_LISTEN has a default here, because an empty variable means
// its default too.
type environment struct {
	Config          string
	NatsURL         string                           `split_words:"true"`
	NatsContext     string                           `split_words:"true"`
	NatsCreds       string                           `split_words:"true"`
	NatsNkey        string                           `split_words:"true"`
	NatsUser        string                           `split_words:"true"`
	NatsPassword    string                           `split_words:"true"`
	NatsCert        string                           `split_words:"true"`
	NatsKey         string                           `split_words:"true"`
	NatsCA          string                           `split_words:"true"`
	NatsInbox       string                           `split_words:"true"`
	NatsListen      decoded[string, listenAddressOf] `split_words:"true"`
	NatsAuth        decoded[NATSAuth, authOf]        `split_words:"true"`
	NatsConnections decoded[int, connectionsOf]      `split_words:"true"`
	DataDir         string                           `split_words:"true"`
	StateDir        string                           `split_words:"true"`
	Durability      decoded[Durability, durabilityOf]
	RedisURL        decoded[Secret, redisOf] `split_words:"true"`
	Replicas        decoded[int, replicasOf]
	Partitions      decoded[int, partitionsOf]
	Roles           decoded[[]Role, rolesOf]
	Instance        decoded[string, instanceOf]
	HTTPListen      decoded[string, listenAddressOf] `split_words:"true" default:"127.0.0.1:8480"`
	HTTPToken       decoded[Secret, tokenOf]         `split_words:"true"`
	Secrets         decoded[[]string, secretsOf]
	LogLevel        decoded[slog.Level, levelOf] `split_words:"true"`
	LogFormat       decoded[LogFormat, formatOf] `split_words:"true"`
	Memory          decoded[int64, memoryOf]
	ShutdownTimeout decoded[time.Duration, timeoutOf] `split_words:"true"`
}

// ReadSettings reads the WEIR_ variables. The error is *Errors and has every variable that is wrong. It reads the file
// system only for a context of the nats command, and to check that weir.yaml and the files for signing in exist.
func ReadSettings() (*Settings, error) { return ReadSettingsFor("") }

// ReadSettingsFor is ReadSettings with address in place of WEIR_NATS_URL, unless it is empty.
func ReadSettingsFor(address string) (*Settings, error) {
	var env environment
	if err := envconfig.Process("weir", &env); err != nil {
		return nil, &Errors{Problems: []Problem{{Path: "WEIR_", Message: err.Error()}}}
	}
	if address != "" {
		env.NatsURL = address
	}
	v := &variables{}
	to := v.natsServer(env)
	s := &Settings{
		Config:          configFile(env.Config),
		NATSContext:     env.NatsContext,
		NATSURL:         to.NATSURL,
		NATSCreds:       to.NATSCreds,
		NATSSignIn:      to.NATSSignIn,
		NATSCA:          to.NATSCA,
		NATSInbox:       to.NATSInbox,
		NATSListen:      env.NatsListen.or(v, "WEIR_NATS_LISTEN", "127.0.0.1:4222"),
		NATSAuth:        env.NatsAuth.or(v, "WEIR_NATS_AUTH", AuthOperators),
		NATSConnections: env.NatsConnections.or(v, "WEIR_NATS_CONNECTIONS", 0),
		DataDir:         cmp.Or(env.DataDir, "weir-data"),
		Durability:      env.Durability.or(v, "WEIR_DURABILITY", DurabilityAlways),
		RedisURL:        env.RedisURL.or(v, "WEIR_REDIS_URL", Secret{}),
		Partitions:      env.Partitions.or(v, "WEIR_PARTITIONS", 8),
		Roles:           env.Roles.or(v, "WEIR_ROLES", []Role{RoleDispatch, RoleIngest}),
		Instance:        env.Instance.or(v, "WEIR_INSTANCE", randomInstance()),
		HTTPListen:      env.HTTPListen.or(v, "WEIR_HTTP_LISTEN", ""),
		HTTPToken:       env.HTTPToken.or(v, "WEIR_HTTP_TOKEN", Secret{}),
		Secrets:         env.Secrets.or(v, "WEIR_SECRETS", nil),
		LogLevel:        env.LogLevel.or(v, "WEIR_LOG_LEVEL", slog.LevelInfo),
		LogFormat:       env.LogFormat.or(v, "WEIR_LOG_FORMAT", LogText),
		Memory:          env.Memory.or(v, "WEIR_MEMORY", 0),
		ShutdownTimeout: env.ShutdownTimeout.or(v, "WEIR_SHUTDOWN_TIMEOUT", 30*time.Second),
		ofContext:       to.ofContext,
	}
	s.StateDir = cmp.Or(env.StateDir, besideData(s.DataDir, env))
	replicas, most := 3, 5
	if env.NatsURL == "" && env.NatsContext == "" {
		replicas, most = 1, 1
	}
	s.Replicas = env.Replicas.or(v, "WEIR_REPLICAS", replicas)
	if s.Replicas > most {
		v.fail("WEIR_REPLICAS", "the embedded server is one server and keeps one replica", "set 1, or WEIR_NATS_URL to a cluster")
	}
	v.exposed(s)
	v.unknown()
	if len(v.problems) > 0 {
		return nil, &Errors{Problems: v.problems}
	}
	s.Warnings = v.warnings
	return s, nil
}

// variables collects the problems found while the environment is read.
type variables struct {
	problems []Problem
	warnings []Problem
}

func (v *variables) fail(name, message, fix string) {
	v.problems = append(v.problems, Problem{Path: name, Message: message, Fix: fix})
}

func (v *variables) warn(name, message, fix string) {
	v.warnings = append(v.warnings, Problem{Path: name, Message: message, Fix: fix})
}

// variable parses one; an empty one means fallback, and no fallback the zero value.
func variable[T any](v *variables, name, text, fallback string, parse func(string) (T, error)) T {
	if text == "" {
		text = fallback
	}
	var zero T
	if text == "" {
		return zero
	}
	got, err := parse(text)
	if err != nil {
		v.problems = append(v.problems, problemOf(name, err))
		return zero
	}
	return got
}

// Guarded refuses an HTTP side that other machines can reach without any token, neither of the environment nor of the
// configuration. c may be nil.
func (s *Settings) Guarded(c *Config) error {
	if s.HTTPListen == "" || s.HTTPToken.IsSet() || IsLoopback(s.HTTPListen) || c != nil && len(c.HTTP.Tokens) > 0 {
		return nil
	}
	return &Errors{Problems: []Problem{{
		Path: "WEIR_HTTP_LISTEN", Message: s.HTTPListen + ": others than this machine could connect, without authentication",
		Fix: "set WEIR_HTTP_TOKEN, write tokens under http in the configuration, or listen on a loopback address such as 127.0.0.1",
	}}}
}

// exposed warns of an embedded server that other machines can reach without credentials, and says what that means.
func (v *variables) exposed(s *Settings) {
	if s.Embedded() && s.NATSAuth != AuthRequired && s.NATSListen != "" && !IsLoopback(s.NATSListen) {
		v.warn("WEIR_NATS_LISTEN", s.NATSListen+": other machines can connect without credentials: they can "+s.NATSAuth.lets()+", and spend money",
			"set WEIR_NATS_AUTH=required, listen on 127.0.0.1, or use a server with accounts (deploy/nats)")
	}
	if s.Embedded() && !s.Has(RoleDispatch) {
		v.warn("WEIR_ROLES", "jobs are accepted, and none is called unless another weir connects to this one's server",
			"add dispatch, or start one with the role dispatch whose WEIR_NATS_URL names this one")
	}
}

// unknown looks for variables that weir does not have. One that is nearly a name is a typing error and refused: with a
// mistyped WEIR_REDIS_URL, limits would silently not be shared. Any other is only a warning: Kubernetes sets
// WEIR_SERVICE_HOST and similar ones for a service called weir; those are ignored.
func (v *variables) unknown() {
	var names []string
	for _, known := range (&Settings{}).Redacted() {
		names = append(names, strings.TrimPrefix(known.Name, "WEIR_"))
	}
	ofKubernetes := regexp.MustCompile(`^WEIR_(.*_)?(SERVICE_(HOST|PORT)|PORT)(_|$)`)
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		short, ours := strings.CutPrefix(name, "WEIR_")
		if !ours || slices.Contains(names, short) || ofKubernetes.MatchString(name) {
			continue
		}
		if near := Closest(short, names); near != "" {
			v.fail(name, "there is no such variable", "did you mean WEIR_"+near+"?")
			continue
		}
		v.warn(name, "there is no such variable", "remove it")
	}
}

func configFile(text string) string {
	if text != "" {
		return text
	}
	if _, err := os.Stat(DefaultFile); err == nil {
		return DefaultFile
	}
	return ""
}

// besideData returns the directory for state kept outside the store: the data directory. With an external server there
// need not be one, and none is created unless it is named.
func besideData(data string, env environment) string {
	if (env.NatsURL != "" || env.NatsContext != "") && env.DataDir == "" {
		return ""
	}
	return filepath.Join(data, "state")
}

// readableFile reads the path of an existing readable file. The message does not contain the path.
func readableFile(text string) (string, error) {
	file, err := openRegular(text)
	if err != nil {
		return "", refuse("name a file that this user may read", "the file cannot be read: %s", err)
	}
	return text, file.Close()
}

func secretFile(text string) (Secret, error) {
	path, err := readableFile(text)
	return Secret{text: path}, err
}

func roles(text string) ([]Role, error) {
	var got []Role
	for word := range strings.SplitSeq(text, ",") {
		role, err := oneOf(RoleIngest, RoleDispatch)(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(got, role) {
			got = append(got, role)
		}
	}
	slices.Sort(got)
	return got, nil
}

func logLevel(text string) (slog.Level, error) {
	word, err := oneOf("debug", "info", "warn", "error")(strings.ToLower(text))
	if err != nil {
		return 0, err
	}
	var level slog.Level
	return level, level.UnmarshalText([]byte(word))
}

func instance(text string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`).MatchString(text) {
		return "", refuse("write letters, digits, '-', '_' and '.' only, at most 128", "%s cannot be a replica's name", quote(text))
	}
	return text, nil
}

// randomInstance returns the host's name and eight random hexadecimal digits, so that two replicas on one host, or a
// restarted one, never share a name.
func randomInstance() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "weir"
	}
	host = regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(host, "-")
	var suffix [4]byte
	rand.Read(suffix[:]) // never fails: it ends the program instead
	return host[:min(len(host), 64)] + "-" + hex.EncodeToString(suffix[:])
}
