package environment

import (
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/secret"

	"github.com/kelseyhightower/envconfig"
)

// group is a set of variables that the help shows in one table.
type group struct {
	heading   string
	variables []field.Field
}

// groups returns all variables of weir, in the order in which they are read.
func (s *Settings) groups() []group {
	in, dataNamed := &s.NATSSignIn, true
	return []group{
		{"All of weir", []field.Field{
			{
				Name: "WEIR_CONFIG", Is: field.One(&s.Config, field.Free("a path", anything)),
				Otherwise: "`weir.yaml` if it exists", Absent: func() { s.Config = defaultFile() },
				Means: "the configuration file. Without one weir starts with the configuration in NATS",
			},
			{
				Name: "WEIR_ROLES", Is: field.One(&s.Roles, rolesType()), Or: "ingest,dispatch",
				Means: "what this replica does: accept jobs, call APIs",
			},
			{
				Name: "WEIR_INSTANCE", Is: field.One(&s.Instance, field.Free("letters, digits and `-_.`, at most 128", instance)),
				Otherwise: "host name and eight random digits", Absent: func() { s.Instance = randomInstance() },
				Means: "this replica's name, different for each replica",
			},
			{
				Name:      "WEIR_SITE",
				Is:        field.One(&s.Site, field.Free("a name: `a-z`, `0-9`, `-` and `_`", grammar.ParseName)),
				Otherwise: "empty",
				Means: "the site of this weir: it enforces that site's share of accounts with shares ([sites](sites.md)). The " +
					"same for all replicas on one server",
			},
			{
				Name: "WEIR_SITES", Otherwise: "empty",
				Is: field.One(&s.Sites, field.Type[[]SiteAt]{
					Parse: siteList, Show: shownSites, Words: "`SITE=CONTEXT` or `SITE=nats://…`, with commas between",
				}),
				Means: "where `weir shares` reaches each site: a context of the `nats` command, or an address, for which the " +
					"variables below sign in ([sites](sites.md))",
			},
			{
				Name: "WEIR_MEMORY", Is: field.One(&s.Memory, field.OrEmpty(field.Size(LeastMemory, 1<<50))), Otherwise: "empty",
				Means: "the resident memory of the process, including the server inside. It decides how many jobs weir holds, " +
					"and how large the heap may grow. Empty: what the control group or `GOMEMLIMIT` allows, else half of the " +
					"machine's memory",
			},
			{
				Name: "WEIR_SHUTDOWN_TIMEOUT", Is: field.One(&s.ShutdownTimeout, field.Duration(0, time.Hour)), Or: "30s",
				Means: "how long weir waits for running calls after SIGTERM",
			},
			{
				Name: "WEIR_LOG_LEVEL", Is: field.One(&s.LogLevel, field.Type[slog.Level]{
					Parse: logLevel,
					Show:  func(l slog.Level) string { return strings.ToLower(l.String()) },
					Words: "`debug`, `info`, `warn` or `error`",
				}), Or: "info",
				Means: "the lowest level of log lines, on stderr",
			},
			{
				Name:  "WEIR_LOG_FORMAT",
				Is:    field.One(&s.LogFormat, field.Word(LogText, LogJSON)),
				Or:    "text",
				Means: "the format of log lines",
			},
		}},
		{"NATS", []field.Field{
			{
				Name: "WEIR_NATS_URL", In: "url", Expand: anything,
				Is:        field.One(&s.NATSURL, secretOf("`nats://`, `tls://`, `ws://`, `wss://`; several with commas", natsURL)),
				Otherwise: "empty",
				Means: "the server or cluster to use, 2.14 or later; name every server of a cluster. Empty: a nats-server runs " +
					"inside the process (not on Windows), and commands look for it at `WEIR_NATS_LISTEN`",
			},
			{
				Name: "WEIR_NATS_CONTEXT", Is: field.One(&s.NATSContext, field.Free("a name", anything)), Otherwise: "empty",
				Means: "a context of the `nats` command, with the server's address and weir's user: [below](#signing-in)",
			},
			{
				Name:      "WEIR_NATS_CREDS",
				In:        "creds",
				Expand:    fileOf,
				Is:        field.One(&s.NATSCreds, secretOf("a path", secretFile)),
				Otherwise: "empty",
				Means:     "credentials for the server, as nsc writes them",
			},
			{
				Name:      "WEIR_NATS_NKEY",
				In:        "nkey",
				Expand:    fileOf,
				Is:        field.One(&in.Nkey, secretOf("a path", secretFile)),
				Otherwise: "empty",
				Means:     "a user's nkey seed, instead of credentials",
			},
			{
				Name:      "WEIR_NATS_USER",
				In:        "user",
				Expand:    wordOf,
				Is:        field.One(&in.User, secretOf("a name, or `${file:/path}`", secretWord)),
				Otherwise: "empty", Means: "a user, instead of credentials",
			},
			{
				Name: "WEIR_NATS_PASSWORD", In: "password", Expand: wordOf,
				Is:        field.One(&in.Password, secretOf("a text, or `${file:/path}`", secretWord)),
				Otherwise: "empty",
				Means:     "that user's password",
			},
			{
				Name:      "WEIR_NATS_CERT",
				In:        "cert",
				Expand:    fileOf,
				Is:        field.One(&in.Cert, field.Free("a path", readableFile)),
				Otherwise: "empty",
				Means:     "weir's client certificate, in PEM, if the server asks for one",
			},
			{
				Name:      "WEIR_NATS_KEY",
				In:        "key",
				Expand:    fileOf,
				Is:        field.One(&in.Key, field.Free("a path", readableFile)),
				Otherwise: "empty",
				Means:     "the certificate's key",
			},
			{
				Name:      "WEIR_NATS_CA",
				In:        "ca",
				Expand:    fileOf,
				Is:        field.One(&s.NATSCA, field.Free("a path", readableFile)),
				Otherwise: "empty",
				Means:     "the CA that signed the server's certificate",
			},
			{
				Name: "WEIR_NATS_INBOX", In: "inbox_prefix", Expand: anything,
				Is: field.One(&s.NATSInbox, field.Free("tokens of letters, digits, `-` and `_`", inboxPrefix)), Or: "_INBOX",
				Means: "prefix of the subjects on which weir receives replies. Change it if every role has a prefix of its own " +
					"(`_INBOX.worker`)",
			},
			{
				Name: "WEIR_REPLICAS", Is: field.One(&s.Replicas, field.Whole(1, 5)),
				Otherwise: "1 with the server inside, else 3", Absent: func() {
					if s.Replicas = 3; s.Embedded() {
						s.Replicas = 1
					}
				},
				Means: "copies of every stream and key-value bucket. A stream or bucket that already has more copies keeps them",
			},
			{
				Name: "WEIR_PARTITIONS", Is: field.One(&s.Partitions, field.Whole(1, 256)), Or: "8",
				Means: "partitions of an API's queue, fixed when the API is first seen. With several replicas: more than there " +
					"are replicas",
			},
			{
				Name: "WEIR_NATS_LISTEN",
				Is:   field.One(&s.NATSListen, field.Free("host:port, port 0 for any", listenAddress)),
				Or:   "127.0.0.1:4222",
				Means: "where the server inside listens. Any client that reaches it may submit jobs and read everything, unless " +
					"`WEIR_NATS_AUTH` is `required`",
			},
			{
				Name: "WEIR_NATS_AUTH",
				Is:   field.One(&s.NATSAuth, field.Word(AuthOperators, AuthRequired, AuthOpen)),
				Or:   "operators",
				Means: "which clients the server inside accepts, and with which rights: " +
					"[below](#who-may-do-what-on-the-server-inside)",
			},
			{
				Name:      "WEIR_NATS_CONNECTIONS",
				Is:        field.One(&s.NATSConnections, field.OrEmpty(field.Whole(1, 1_000_000))),
				Otherwise: "empty",
				Means: "how many producers may be connected to the server inside at a time; if empty, as many as fit into a " +
					"fourth of the memory at 52 KiB each, from 64 to 65536 (2126 with `WEIR_MEMORY=512MiB`). Never more than a " +
					"fourth of the files that the process may open (`ulimit -n`)",
			},
			{
				Name: "WEIR_DATA_DIR", Is: field.One(&s.DataDir, field.Free("a path", anything)), Otherwise: "`weir-data`",
				Absent: func() { s.DataDir, dataNamed = "weir-data", false },
				Means:  "the store of the server inside",
			},
			{
				Name:      "WEIR_STATE_DIR",
				Is:        field.One(&s.StateDir, field.Free("a path", anything)),
				Otherwise: "`state` in `WEIR_DATA_DIR`",
				Absent:    func() { s.StateDir = s.besideData(dataNamed) },
				Means: "where this machine keeps notes about the store, such as the end of each stream, and the flight recorder " +
					"([store](store.md)), which needs a local disk or a directory in memory. If the notes are on another disk than " +
					"the store, they also reveal that the store's volume was rolled back to a snapshot. " +
					"If `WEIR_NATS_URL` is set, and neither this nor `WEIR_DATA_DIR` is, weir keeps neither notes nor a flight " +
					"recorder",
			},
			{
				Name: "WEIR_DURABILITY",
				Is:   field.One(&s.Durability, field.Word(DurabilityAlways, DurabilityInterval)),
				Or:   "always",
				Means: "when the server inside has a job, a result or a letter on disk: before weir answers, or within a second " +
					"([promises](promises.md))",
			},
		}},
		{"Redis and HTTP", []field.Field{
			{
				Name:      "WEIR_REDIS_URL",
				Is:        field.One(&s.RedisURL, secretOf("`redis://` or `rediss://`", redisURL)),
				Otherwise: "empty",
				Means: "the Redis (7, `noeviction`) in which weir counts limits, for all replicas. Empty: weir counts in the " +
					"process",
			},
			{
				Name: "WEIR_HTTP_LISTEN",
				Is:   field.One(&s.HTTPListen, field.Free("host:port, port 0 for any, or empty", listenAddress)),
				Or:   "127.0.0.1:8480", Empty: true,
				Means: "the address of the console, `/metrics`, `/livez` and `/readyz`, and of jobs over HTTP " +
					"([submission](submission.md)). Empty: weir does not serve HTTP",
			},
			{
				Name: "WEIR_SECRETS", Otherwise: "empty",
				Is: field.One(&s.Secrets, field.Type[[]string]{
					Parse: secret.Names, Show: func(names []string) string { return strings.Join(names, ",") },
					Words: "names of variables and full paths of directories or files, with commas between",
				}),
				Means: "which variables and files a configuration from NATS (`weir config apply`) may refer to by `${env:…}` and " +
					"`${file:…}`. References in this process's own file are always allowed. Example: `CREDIT_TOKEN,/run/secrets`",
			},
			{
				Name: "WEIR_HTTP_TOKEN", Otherwise: "empty",
				Is: field.One(&s.HTTPToken, secretOf("16 to 256 letters, digits and `-._~+/=`, or `${file:/path}`", bearerToken)),
				Means: "the token (`Authorization: Bearer …`) of requests with all rights. If other machines can connect, weir " +
					"requires this or tokens under `http` in the [configuration](configuration.md). `/livez` and `/readyz` answer " +
					"without a token; only a request that may read everything gets the reason why weir is not ready",
			},
		}},
	}
}

// variables returns the fields of all groups.
func (s *Settings) variables() (all []field.Field) {
	for _, g := range s.groups() {
		all = append(all, g.variables...)
	}
	return all
}

func anything(text string) (string, error) { return text, nil }

// secretOf returns the type of a setting that is shown without its credentials, or not at all.
func secretOf(words string, parse func(string) (secret.Value, error)) field.Type[secret.Value] {
	return field.Type[secret.Value]{Parse: parse, Show: secret.Value.String, Words: words}
}

// shownSites returns where sites are, without passwords.
func shownSites(all []SiteAt) string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = s.Site + "=" + s.At.String()
	}
	return strings.Join(words, ",")
}

func rolesType() field.Type[[]Role] {
	return field.Type[[]Role]{Parse: roles, Show: func(all []Role) string {
		words := make([]string, len(all))
		for i, r := range all {
			words[i] = string(r)
		}
		return strings.Join(words, ",")
	}, Words: "`ingest` and `dispatch`, with a comma between"}
}

// variable is one variable while it is decoded. It keeps its error, because envconfig stops at the first error that
// Decode returns, and weir must report all wrong variables at once.
type variable struct {
	field.Field
	text string
	set  bool // even to the empty string
	err  error
}

// Decode implements envconfig.Decoder. An empty variable gets its default later.
func (v *variable) Decode(text string) error {
	if v.text, v.set = text, true; text != "" {
		v.err = v.Is.Parse(text)
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
		all = append(all, &variable{Field: f})
		types = append(types, reflect.StructField{
			Name: "V" + strconv.Itoa(i),
			Type: reflect.TypeFor[*variable](),
			Tag:  reflect.StructTag(`envconfig:"` + f.Name + `"`),
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
		all = append(all, Setting{v.Name, v.Is.Show()})
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

// Tables returns all variables of weir, grouped under the headings of the help.
func Tables() (all []field.Table) {
	lent := func(string) bool { return false }

	for _, g := range new(Settings).groups() {
		all = append(all, field.Section{Fields: slices.Clip(g.variables)}.Table(g.heading, lent))
	}
	return all
}
