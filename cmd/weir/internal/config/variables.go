package config

import (
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// group is a set of variables that the help shows in one table.
type group struct {
	heading   string
	variables []field
}

// groups returns all variables of weir, in the order in which they are read.
func (s *Settings) groups() []group {
	in, dataNamed := &s.NATSSignIn, true
	return []group{
		{"All of weir", []field{
			{
				name: "WEIR_CONFIG", is: one(&s.Config, free("a path", anything)),
				otherwise: "`weir.yaml` if it exists", absent: func() { s.Config = defaultFile() },
				means: "the configuration file. Without one weir starts with the configuration in NATS",
			},
			{
				name: "WEIR_ROLES", is: one(&s.Roles, rolesType()), or: "ingest,dispatch",
				means: "what this replica does: accept jobs, call APIs",
			},
			{
				name: "WEIR_INSTANCE", is: one(&s.Instance, free("letters, digits and `-_.`, at most 128", instance)),
				otherwise: "host name and eight random digits", absent: func() { s.Instance = randomInstance() },
				means: "this replica's name, different for each replica",
			},
			{
				name: "WEIR_SITE", is: one(&s.Site, free("a name: `a-z`, `0-9`, `-` and `_`", parseName)), otherwise: "empty",
				means: "the site of this weir: it enforces that site's share of accounts with shares ([sites](sites.md)). The same for all " +
					"replicas on one server",
			},
			{
				name: "WEIR_SITES", otherwise: "empty",
				is: one(&s.Sites, of[[]SiteAt]{
					siteList, shownSites, "`SITE=CONTEXT` or `SITE=nats://…`, with commas between", nil,
				}),
				means: "where `weir shares` reaches each site: a context of the `nats` command, or an address, for which the variables below " +
					"sign in ([sites](sites.md))",
			},
			{
				name: "WEIR_MEMORY", is: one(&s.Memory, orEmpty(size(LeastMemory, 1<<50))), otherwise: "empty",
				means: "the resident memory of the process, including the server inside. It decides how many jobs weir holds, and how " +
					"large the heap may grow. Empty: what the control group or `GOMEMLIMIT` allows, else half of the machine's memory",
			},
			{
				name: "WEIR_SHUTDOWN_TIMEOUT", is: one(&s.ShutdownTimeout, duration(0, time.Hour)), or: "30s",
				means: "how long weir waits for running calls after SIGTERM",
			},
			{
				name: "WEIR_LOG_LEVEL", is: one(&s.LogLevel, of[slog.Level]{
					logLevel, func(l slog.Level) string { return strings.ToLower(l.String()) }, "`debug`, `info`, `warn` or `error`", nil,
				}), or: "info",
				means: "the lowest level of log lines, on stderr",
			},
			{name: "WEIR_LOG_FORMAT", is: one(&s.LogFormat, word(LogText, LogJSON)), or: "text", means: "the format of log lines"},
		}},
		{"NATS", []field{
			{
				name: "WEIR_NATS_URL", in: "url", expand: anything,
				is:        one(&s.NATSURL, secretOf("`nats://`, `tls://`, `ws://`, `wss://`; several with commas", natsURL)),
				otherwise: "empty",
				means: "the server or cluster to use, 2.14 or later; name every server of a cluster. Empty: a nats-server runs inside the " +
					"process (not on Windows), and commands look for it at `WEIR_NATS_LISTEN`",
			},
			{
				name: "WEIR_NATS_CONTEXT", is: one(&s.NATSContext, free("a name", anything)), otherwise: "empty",
				means: "a context of the `nats` command, with the server's address and weir's user: [below](#signing-in)",
			},
			{
				name: "WEIR_NATS_CREDS", in: "creds", expand: fileOf, is: one(&s.NATSCreds, secretOf("a path", secretFile)), otherwise: "empty",
				means: "credentials for the server, as nsc writes them",
			},
			{
				name: "WEIR_NATS_NKEY", in: "nkey", expand: fileOf, is: one(&in.Nkey, secretOf("a path", secretFile)), otherwise: "empty",
				means: "a user's nkey seed, instead of credentials",
			},
			{
				name: "WEIR_NATS_USER", in: "user", expand: wordOf, is: one(&in.User, secretOf("a name, or `${file:/path}`", secretWord)),
				otherwise: "empty", means: "a user, instead of credentials",
			},
			{
				name: "WEIR_NATS_PASSWORD", in: "password", expand: wordOf,
				is: one(&in.Password, secretOf("a text, or `${file:/path}`", secretWord)), otherwise: "empty", means: "that user's password",
			},
			{
				name: "WEIR_NATS_CERT", in: "cert", expand: fileOf, is: one(&in.Cert, free("a path", readableFile)), otherwise: "empty",
				means: "weir's client certificate, in PEM, if the server asks for one",
			},
			{
				name: "WEIR_NATS_KEY", in: "key", expand: fileOf, is: one(&in.Key, free("a path", readableFile)), otherwise: "empty",
				means: "the certificate's key",
			},
			{
				name: "WEIR_NATS_CA", in: "ca", expand: fileOf, is: one(&s.NATSCA, free("a path", readableFile)), otherwise: "empty",
				means: "the CA that signed the server's certificate",
			},
			{
				name: "WEIR_NATS_INBOX", in: "inbox_prefix", expand: anything,
				is: one(&s.NATSInbox, free("tokens of letters, digits, `-` and `_`", inboxPrefix)), or: "_INBOX",
				means: "prefix of the subjects on which weir receives replies. Change it if every role has a prefix of its own (`_INBOX.worker`)",
			},
			{
				name: "WEIR_REPLICAS", is: one(&s.Replicas, whole(1, 5)),
				otherwise: "1 with the server inside, else 3", absent: func() {
					if s.Replicas = 3; s.Embedded() {
						s.Replicas = 1
					}
				},
				means: "copies of every stream and key-value bucket. A stream or bucket that already has more copies keeps them",
			},
			{
				name: "WEIR_PARTITIONS", is: one(&s.Partitions, whole(1, 256)), or: "8",
				means: "partitions of an API's queue, fixed when the API is first seen. With several replicas: more than there are replicas",
			},
			{
				name: "WEIR_NATS_LISTEN", is: one(&s.NATSListen, free("host:port, port 0 for any", listenAddress)), or: "127.0.0.1:4222",
				means: "where the server inside listens. Any client that reaches it may submit jobs and read everything, unless " +
					"`WEIR_NATS_AUTH` is `required`",
			},
			{
				name: "WEIR_NATS_AUTH", is: one(&s.NATSAuth, word(AuthOperators, AuthRequired, AuthOpen)), or: "operators",
				means: "which clients the server inside accepts, and with which rights: [below](#who-may-do-what-on-the-server-inside)",
			},
			{
				name: "WEIR_NATS_CONNECTIONS", is: one(&s.NATSConnections, orEmpty(whole(1, 1_000_000))), otherwise: "empty",
				means: "how many producers may be connected to the server inside at a time; if empty, as many as fit into a fourth of the memory " +
					"at 52 KiB each, from 64 to 65536 (2126 with `WEIR_MEMORY=512MiB`). Never more than a fourth of the files that the " +
					"process may open (`ulimit -n`)",
			},
			{
				name: "WEIR_DATA_DIR", is: one(&s.DataDir, free("a path", anything)), otherwise: "`weir-data`",
				absent: func() { s.DataDir, dataNamed = "weir-data", false },
				means:  "the store of the server inside",
			},
			{
				name: "WEIR_STATE_DIR", is: one(&s.StateDir, free("a path", anything)), otherwise: "`state` in `WEIR_DATA_DIR`",
				absent: func() { s.StateDir = s.besideData(dataNamed) },
				means: "where this machine keeps notes about the store, such as the end of each stream, and the flight recorder " +
					"([store](store.md)), which needs a local disk or a directory in memory. If the notes are on another disk than the store, they also reveal that the store's volume was rolled back to a snapshot. " +
					"If `WEIR_NATS_URL` is set, and neither this nor `WEIR_DATA_DIR` is, weir keeps neither notes nor a flight recorder",
			},
			{
				name: "WEIR_DURABILITY", is: one(&s.Durability, word(DurabilityAlways, DurabilityInterval)), or: "always",
				means: "when the server inside has a job, a result or a letter on disk: before weir answers, or within a second " +
					"([promises](promises.md))",
			},
		}},
		{"Redis and HTTP", []field{
			{
				name: "WEIR_REDIS_URL", is: one(&s.RedisURL, secretOf("`redis://` or `rediss://`", redisURL)), otherwise: "empty",
				means: "the Redis (7, `noeviction`) in which weir counts limits, for all replicas. Empty: weir counts in the process",
			},
			{
				name: "WEIR_HTTP_LISTEN", is: one(&s.HTTPListen, free("host:port, port 0 for any, or empty", listenAddress)),
				or: "127.0.0.1:8480", empty: true,
				means: "the address of the console, `/metrics`, `/livez` and `/readyz`, and of jobs over HTTP " +
					"([submission](submission.md)). Empty: weir does not serve HTTP",
			},
			{
				name: "WEIR_SECRETS", otherwise: "empty",
				is: one(&s.Secrets, of[[]string]{
					secretNames, func(names []string) string { return strings.Join(names, ",") },
					"names of variables and full paths of directories or files, with commas between", nil,
				}),
				means: "which variables and files a configuration from NATS (`weir config apply`) may refer to by `${env:…}` and `${file:…}`. " +
					"References in this process's own file are always allowed. Example: `CREDIT_TOKEN,/run/secrets`",
			},
			{
				name: "WEIR_HTTP_TOKEN", otherwise: "empty",
				is: one(&s.HTTPToken, secretOf("16 to 256 letters, digits and `-._~+/=`, or `${file:/path}`", bearerToken)),
				means: "the token (`Authorization: Bearer …`) of requests with all rights. If other machines can connect, weir requires this or tokens " +
					"under `http` in the [configuration](configuration.md). `/livez` and `/readyz` answer without a token; " +
					"only a request that may read everything gets the reason why weir is not ready",
			},
		}},
	}
}

// variables returns the fields of all groups.
func (s *Settings) variables() (all []field) {
	for _, g := range s.groups() {
		all = append(all, g.variables...)
	}
	return all
}

func anything(text string) (string, error) { return text, nil }

// secretOf returns the type of a setting that is shown without its credentials, or not at all.
func secretOf(words string, parse func(string) (Secret, error)) of[Secret] {
	return of[Secret]{parse, Secret.String, words, nil}
}

// shownSites returns where sites are, without passwords.
func shownSites(all []SiteAt) string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = s.Site + "=" + s.At.String()
	}
	return strings.Join(words, ",")
}

func rolesType() of[[]Role] {
	return of[[]Role]{roles, func(all []Role) string {
		words := make([]string, len(all))
		for i, r := range all {
			words[i] = string(r)
		}
		return strings.Join(words, ",")
	}, "`ingest` and `dispatch`, with a comma between", nil}
}

// variable is one variable while it is decoded. It keeps its error, because envconfig stops at the first error that
// Decode returns, and weir must report all wrong variables at once.
type variable struct {
	field
	text string
	set  bool // even to the empty string
	err  error
}

// Decode implements envconfig.Decoder. An empty variable gets its default later.
func (v *variable) Decode(text string) error {
	if v.text, v.set = text, true; text != "" {
		v.err = v.is.parse(text)
	}
	return nil
}

// decoded returns the variables of the environment. envconfig decodes each one into a variable, which puts the value in
// its place in the settings. envconfig takes only a struct with the names in its tags. weir makes this struct from the
// registry, because a declared one would repeat every name, and could lack one.
func (s *Settings) decoded() ([]*variable, error) {
	var all []*variable
	var types []reflect.StructField
	for i, f := range s.variables() {
		all = append(all, &variable{field: f})
		types = append(types, reflect.StructField{
			Name: "V" + strconv.Itoa(i), Type: reflect.TypeFor[*variable](), Tag: reflect.StructTag(`envconfig:"` + f.name + `"`),
		})
	}
	into := reflect.New(reflect.StructOf(types))
	for i, v := range all {
		into.Elem().Field(i).Set(reflect.ValueOf(v))
	}
	return all, envconfig.Process("", into.Interface())
}

// Setting is one variable with its value as it may be shown.
type Setting struct{ Name, Value string }

// Redacted lists the variables and their values, with secrets hidden.
func (s *Settings) Redacted() (all []Setting) {
	for _, v := range s.variables() {
		all = append(all, Setting{v.name, v.is.show()})
	}
	return all
}

// LogValue returns the settings with secrets hidden.
func (s *Settings) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, setting := range s.Redacted() {
		attrs = append(attrs, slog.String(setting.Name, setting.Value))
	}
	return slog.GroupValue(attrs...)
}

// Environment returns all variables of weir, grouped under the headings of the help.
func Environment() (all []Section) {
	for _, g := range new(Settings).groups() {
		all = append(all, described(g.heading, section{fields: slices.Clip(g.variables)}))
	}
	return all
}
