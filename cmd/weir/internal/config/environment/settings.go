// Package environment turns the WEIR_ variables into Settings.
//
//	variables.go      the registry of variables
//	settings.go       the values, and the checks across them
//	signin.go         how weir signs in to NATS
//	natscontext.go    contexts of the nats command
//	address.go        addresses of servers
package environment

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

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// Settings holds the values of the WEIR_ variables for this process.
type Settings struct {
	Config          string       // path of the configuration file, empty for none
	NATSContext     string       // name of a nats context, empty: none. Its values are in the fields below
	NATSURL         secret.Value // empty: the server is embedded
	NATSCreds       secret.Value // path of a credentials file
	NATSSignIn      SignIn
	NATSCA          string // path of a CA file
	NATSInbox       string // prefix of the subjects on which answers arrive: by default _INBOX
	NATSListen      string // host:port of the embedded server
	NATSAuth        NATSAuth
	NATSConnections int // of producers to the embedded server at a time, 0: as many as memory allows
	DataDir         string
	StateDir        string // directory for state kept outside the store; empty: none
	Durability      Durability
	RedisURL        secret.Value // empty: this process counts the limits itself
	Replicas        int          // of streams and key-value buckets: 1 to 5, 1 when embedded
	Partitions      int          // of an api's queue: 1 to 256
	Roles           []Role       // at least one, sorted
	Site            string       // the site of this weir, empty for none
	Sites           []SiteAt     // where commands reach sites, sorted by name
	Instance        string       // this replica's name: letters, digits, '-', '_' and '.', at most 128
	HTTPListen      string       // host:port, empty for none
	HTTPToken       secret.Value // that a request must carry; required if other machines can connect
	// Secrets are allowed in a configuration from NATS: names of variables, clean paths of directories or files.
	Secrets         []string
	LogLevel        slog.Level
	LogFormat       LogFormat
	Memory          int64         // bytes that may be resident; 0: as much as the machine or container allows
	ShutdownTimeout time.Duration // 0 to 1h

	// Restored, Moved and Counted are an operator's statements about this start, given by flags. Restored: the store
	// was restored from a backup. Moved: the store is that of a stopped weir, in another place. Counted: limits
	// continue with the counts in a restored store.
	Restored, Moved, Counted bool

	ofContext map[string]string // variable → the context's field that set it

	// Warnings are about settings that are allowed but probably a mistake.
	Warnings []problem.Problem
}

// NATSAuth says which clients the embedded server admits.
type NATSAuth string

const (
	// AuthOperators lets clients without credentials publish jobs and read. Everything else requires the credentials of
	// an operator.
	AuthOperators NATSAuth = "operators"
	// AuthOpen gives every client the rights of an operator.
	AuthOpen NATSAuth = "open"
	// AuthRequired admits only clients with credentials from the data directory.
	AuthRequired NATSAuth = "required"
)

// lets says in words what a client without credentials can do.
func (a NATSAuth) lets() string {
	if a == AuthOpen {
		return "read and delete every job"
	}
	return "read everything and submit jobs"
}

// Durability says when writes of the embedded server reach the disk.
type Durability string

const (
	// DurabilityAlways syncs a job to disk before its receipt is sent.
	DurabilityAlways Durability = "always"
	// DurabilityInterval syncs the disk once a second. A power cut may lose the last second.
	DurabilityInterval Durability = "interval"
)

// Role is a part of weir's work that a replica does.
type Role string

// The roles.
const (
	RoleDispatch Role = "dispatch"
	RoleIngest   Role = "ingest"
)

// LogFormat is the format of log lines.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// LeastMemory is the least memory, in bytes, with which weir can run: embedded server, small bodies.
const LeastMemory = 96 << 20

// DefaultFile is the configuration file that weir reads if the operator names none and this one exists.
const DefaultFile = "weir.yaml"

// Embedded reports whether the NATS server runs inside the process.
func (s *Settings) Embedded() bool { return !s.NATSURL.IsSet() }

// Has reports whether this replica has a role.
func (s *Settings) Has(r Role) bool { return slices.Contains(s.Roles, r) }

// Read reads the WEIR_ variables. The error is a *problem.Errors that lists every wrong variable. It reads files only
// for a nats context, and to check that weir.yaml and the files for signing in exist.
func Read() (*Settings, error) { return ReadFor("") }

// ReadFor is Read, but uses address in place of WEIR_NATS_URL if address is not empty.
func ReadFor(address string) (*Settings, error) {
	return readSettings(func(name string) (string, bool) { return address, name == "WEIR_NATS_URL" && address != "" })
}

// readSettings reads the variables. If instead returns true for a variable, its text replaces the value in the
// environment. The text "" stands for a variable that is not set.
func readSettings(instead func(name string) (string, bool)) (*Settings, error) {
	found, err := new(Settings).decoded()
	if err != nil {
		return nil, &problem.Errors{Problems: []problem.Problem{{Path: "WEIR_", Message: err.Error()}}}
	}
	s := &Settings{}
	v := &variables{settings: s, texts: map[string]string{}}
	var all []*variable
	for i, f := range s.variables() {
		each := &variable{Field: f}
		all = append(all, each)
		if text, ok := instead(each.Name); ok {
			if text != "" {
				_ = each.Decode(text) // keeps its error
			}
		} else if found[i].set {
			_ = each.Decode(found[i].text)
		}
		v.texts[each.Name] = each.text
	}
	v.read(all)
	if v.texts["WEIR_NATS_URL"] == "" && s.NATSContext == "" && s.Replicas > 1 {
		v.fail("WEIR_REPLICAS", "the embedded server is one server and keeps one replica",
			"set 1, or WEIR_NATS_URL to a cluster")
	}
	v.exposed()
	v.unknown()
	if len(v.problems) > 0 {
		return nil, &problem.Errors{Problems: v.problems}
	}
	s.Warnings = v.warnings
	return s, nil
}

// variables collects the problems that are found while the environment is read into settings.
type variables struct {
	settings *Settings
	texts    map[string]string // of the variables that are set
	problems []problem.Problem
	warnings []problem.Problem
}

// read sets each variable that the environment leaves out from the nats context, or to its default.
func (v *variables) read(all []*variable) {
	c := v.context()
	for _, each := range all {
		switch {
		case each.err != nil:
			v.problems = append(v.problems, problem.Of(each.Name, each.err))
		case each.text != "" || each.set && each.Empty:
		case each.In != "" && c.fields[each.In] != "":
			v.from(c, each.In, each.Name, each.Expand, each.Is)
		case each.Absent != nil:
			each.Absent()
		case each.Or != "":
			if err := each.Is.Parse(each.Or); err != nil {
				panic("environment: the default of " + each.Name + " is wrong: " + err.Error())
			}
		}
	}
	v.whole(c)
}

func (v *variables) fail(name, message, fix string) {
	v.problems = append(v.problems, problem.Problem{Path: name, Message: message, Fix: fix})
}

func (v *variables) warn(name, message, fix string) {
	v.warnings = append(v.warnings, problem.Problem{Path: name, Message: message, Fix: fix})
}

// Guarded refuses an HTTP interface that other machines can reach although neither the environment nor the
// configuration has a token. c may be nil.
func (s *Settings) Guarded(c *config.Config) error {
	if s.HTTPListen == "" || s.HTTPToken.IsSet() || grammar.IsLoopback(s.HTTPListen) ||
		c != nil && len(c.HTTP.Tokens) > 0 {
		return nil
	}
	return &problem.Errors{Problems: []problem.Problem{{
		Path: "WEIR_HTTP_LISTEN", Message: s.HTTPListen + ": others than this machine could connect, without authentication",
		Fix: "set WEIR_HTTP_TOKEN, write tokens under http in the configuration, or listen on a loopback address such as " +
			"127.0.0.1",
	}}}
}

// exposed warns of an embedded server that other machines can reach without credentials.
func (v *variables) exposed() {
	s := v.settings
	if s.Embedded() && s.NATSAuth != AuthRequired && s.NATSListen != "" && !grammar.IsLoopback(s.NATSListen) {
		v.warn("WEIR_NATS_LISTEN",
			s.NATSListen+": other machines can connect without credentials: they can "+s.NATSAuth.lets()+", and spend money",
			"set WEIR_NATS_AUTH=required, listen on 127.0.0.1, or use a server with accounts (deploy/nats)")
	}
	if s.Embedded() && !s.Has(RoleDispatch) {
		v.warn("WEIR_ROLES", "jobs are accepted, and none is called unless another weir connects to this one's server",
			"add dispatch, or start one with the role dispatch whose WEIR_NATS_URL names this one")
	}
}

// unknown reports variables that weir does not have. A name close to a known one is a typing error and refused: a
// mistyped WEIR_REDIS_URL would silently leave limits unshared. Any other name is only a warning. Kubernetes sets
// variables such as WEIR_SERVICE_HOST for a service called weir; weir ignores these.
func (v *variables) unknown() {
	var names []string
	for _, known := range v.settings.variables() {
		names = append(names, strings.TrimPrefix(known.Name, "WEIR_"))
	}
	ofKubernetes := regexp.MustCompile(`^WEIR_(.*_)?(SERVICE_(HOST|PORT)|PORT)(_|$)`)
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		short, ours := strings.CutPrefix(name, "WEIR_")
		if !ours || slices.Contains(names, short) || ofKubernetes.MatchString(name) {
			continue
		}
		if near := problem.Closest(short, names); near != "" {
			v.fail(name, "there is no such variable", "did you mean WEIR_"+near+"?")
			continue
		}
		v.warn(name, "there is no such variable", "remove it")
	}
}

// SiteAt says where commands reach a site.
type SiteAt struct {
	Site string
	At   secret.Value // an address, or the name of a context of the nats command
}

// siteList parses the value of WEIR_SITES.
func siteList(text string) ([]SiteAt, error) {
	const fix = "write eu=CONTEXT,us=nats://host:4222, with the names of contexts of the nats command, or addresses"
	var all []SiteAt
	for part := range strings.SplitSeq(text, ",") {
		name, at, found := strings.Cut(strings.TrimSpace(part), "=")
		if _, err := grammar.ParseName(name); err != nil || !found || at == "" {
			return nil, problem.Refuse(fix, "a part does not say where a site is")
		}
		if slices.ContainsFunc(all, func(s SiteAt) bool { return s.Site == name }) {
			return nil, problem.Refuse(fix, "the site %s stands twice", problem.Quote(name))
		}
		where := secret.New(at, at)
		if !strings.Contains(at, "://") && strings.ContainsAny(at, "@:/") { // it may have a secret
			return nil, problem.Refuse(fix, "the site %s has an address without nats://, or a name that no context has", problem.Quote(name))
		}
		if strings.Contains(at, "://") {
			var err error
			if where, err = natsURL(at); err != nil {
				return nil, err
			}
		}
		all = append(all, SiteAt{name, where})
	}
	slices.SortFunc(all, func(a, b SiteAt) int { return strings.Compare(a.Site, b.Site) })
	return all, nil
}

// ReadOf is Read for the server of a site. If the site has an address, the other variables say how to sign in. If it
// has a context of the nats command, the context replaces all WEIR_NATS_ variables.
func ReadOf(site SiteAt) (*Settings, error) {
	at := site.At.Reveal()
	if strings.Contains(at, "://") {
		return readSettings(func(name string) (string, bool) {
			return map[string]string{"WEIR_NATS_URL": at}[name], name == "WEIR_NATS_URL" || name == "WEIR_NATS_CONTEXT"
		})
	}
	return readSettings(func(name string) (string, bool) {
		return map[string]string{"WEIR_NATS_CONTEXT": at}[name], strings.HasPrefix(name, "WEIR_NATS_")
	})
}

func defaultFile() string {
	if _, err := os.Stat(DefaultFile); err == nil {
		return DefaultFile
	}
	return ""
}

// besideData returns the directory for state kept outside the store, which lies in the data directory. An external
// server needs no data directory, so the result is "" unless the operator named one.
func (s *Settings) besideData(named bool) string {
	if !s.Embedded() && !named {
		return ""
	}
	return filepath.Join(s.DataDir, "state")
}

// readableFile checks that text is the path of a readable regular file. Its error does not contain the path.
func readableFile(text string) (string, error) {
	file, err := secret.OpenRegular(text)
	if err != nil {
		return "", problem.Refuse("name a file that this user may read", "the file cannot be read: %s", err)
	}
	return text, file.Close()
}

func secretFile(text string) (secret.Value, error) {
	path, err := readableFile(text)
	return secret.New(path, ""), err
}

func roles(text string) ([]Role, error) {
	var got []Role
	for word := range strings.SplitSeq(text, ",") {
		role, err := grammar.OneOf(RoleIngest, RoleDispatch)(strings.TrimSpace(word))
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
	word, err := grammar.OneOf("debug", "info", "warn", "error")(strings.ToLower(text))
	if err != nil {
		return 0, err
	}
	var level slog.Level
	return level, level.UnmarshalText([]byte(word))
}

func instance(text string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`).MatchString(text) {
		return "",
			problem.Refuse("write letters, digits, '-', '_' and '.' only, at most 128", "%s cannot be a replica's name",
				problem.Quote(text))
	}
	return text, nil
}

// randomInstance returns the host's name and eight random hexadecimal digits. So two replicas on one host never share a
// name, and neither do a replica and its successor.
func randomInstance() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "weir"
	}
	host = regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(host, "-")
	var suffix [4]byte
	rand.Read(suffix[:]) // never returns an error: it ends the program instead
	return host[:min(len(host), 64)] + "-" + hex.EncodeToString(suffix[:])
}
