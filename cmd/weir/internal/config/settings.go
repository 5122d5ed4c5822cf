package config

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
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
	// DurabilityAlways means that a job is on disk before its receipt is sent.
	DurabilityAlways Durability = "always"
	// DurabilityInterval means that the server syncs the disk once a second: a power cut may lose the last second.
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

// ReadSettings reads the WEIR_ variables. The error is *Errors and has every variable that is wrong. It reads the file
// system only for a context of the nats command, and to check that weir.yaml and the files for signing in exist.
func ReadSettings() (*Settings, error) { return ReadSettingsFor("") }

// ReadSettingsFor is ReadSettings with address in place of WEIR_NATS_URL, unless it is empty.
func ReadSettingsFor(address string) (*Settings, error) {
	s := &Settings{}
	all, err := s.decoded()
	if err != nil {
		return nil, &Errors{Problems: []Problem{{Path: "WEIR_", Message: err.Error()}}}
	}
	v := &variables{settings: s, texts: map[string]string{}}
	for _, each := range all {
		if each.name == "WEIR_NATS_URL" && address != "" {
			_ = each.Decode(address)
		}
		v.texts[each.name] = each.text
	}
	v.read(all)
	if v.texts["WEIR_NATS_URL"] == "" && s.NATSContext == "" && s.Replicas > 1 {
		v.fail("WEIR_REPLICAS", "the embedded server is one server and keeps one replica", "set 1, or WEIR_NATS_URL to a cluster")
	}
	v.exposed()
	v.unknown()
	if len(v.problems) > 0 {
		return nil, &Errors{Problems: v.problems}
	}
	s.Warnings = v.warnings
	return s, nil
}

// variables collects the problems found while the environment is read into settings.
type variables struct {
	settings *Settings
	texts    map[string]string // of the variables that are set
	problems []Problem
	warnings []Problem
}

// read takes each variable that is not set from the context of the nats command, or sets its default.
func (v *variables) read(all []*variable) {
	c := v.context()
	for _, each := range all {
		switch {
		case each.err != nil:
			v.problems = append(v.problems, problemOf(each.name, each.err))
		case each.text != "" || each.set && each.empty:
		case each.in != "" && c.fields[each.in] != "":
			v.from(c, each.in, each.name, each.expand, each.is)
		case each.absent != nil:
			each.absent()
		case each.or != "":
			if err := each.is.parse(each.or); err != nil {
				panic("config: the default of " + each.name + " is wrong: " + err.Error())
			}
		}
	}
	v.whole(c)
}

func (v *variables) fail(name, message, fix string) {
	v.problems = append(v.problems, Problem{Path: name, Message: message, Fix: fix})
}

func (v *variables) warn(name, message, fix string) {
	v.warnings = append(v.warnings, Problem{Path: name, Message: message, Fix: fix})
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
func (v *variables) exposed() {
	s := v.settings
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
	for _, known := range v.settings.variables() {
		names = append(names, strings.TrimPrefix(known.name, "WEIR_"))
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

func defaultFile() string {
	if _, err := os.Stat(DefaultFile); err == nil {
		return DefaultFile
	}
	return ""
}

// besideData returns the directory for state kept outside the store: the data directory. With an external server there
// need not be one, and none is created unless it is named.
func (s *Settings) besideData(named bool) string {
	if !s.Embedded() && !named {
		return ""
	}
	return filepath.Join(s.DataDir, "state")
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
