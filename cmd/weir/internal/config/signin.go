package config

import (
	"fmt"
	"slices"
	"strings"
)

// SignIn is how weir signs in to an external server, beside credentials, the server's certificate authority and the
// prefix of inboxes. Files are read for each connection, so that a changed key takes effect from the next connection
// on.
type SignIn struct {
	Nkey           Secret // path of a file with a user's seed
	User, Password Secret // templates: the word itself, or references to it
	Cert, Key      string // paths of a client's certificate and its key: both or neither

	// Only a context of the nats command can set these.
	Token, JWT, Seed Secret // templates
	TLSFirst         bool   // TLS begins before the server's first message
}

// SignsIn reports whether weir shows a server anything that identifies it, apart from the server's address.
func (s *Settings) SignsIn() bool {
	return s.NATSCreds.IsSet() || s.NATSSignIn != SignIn{TLSFirst: s.NATSSignIn.TLSFirst}
}

// SaidBy names the source of a variable's setting: the variable, or a field of a context.
func (s *Settings) SaidBy(variable string) string {
	if field, ok := s.ofContext[variable]; ok {
		return fmt.Sprintf("%s in the context %s (WEIR_NATS_CONTEXT)", field, s.NATSContext)
	}
	return variable
}

// natsServer reads from the variables, and then from the context, where a server is and how to sign in. It fills only
// those fields of the settings.
func (v *variables) natsServer(env environment) *Settings {
	s := &Settings{NATSContext: env.NatsContext}
	ways := 0
	for _, set := range []string{env.NatsCreds, env.NatsNkey, env.NatsUser} {
		if set != "" {
			ways++
		}
	}
	inAddress := strings.Contains(env.NatsURL, "@")
	var c natsContext
	if env.NatsContext != "" {
		var err error
		if c, err = natsContextNamed(env.NatsContext); err != nil {
			v.problems = append(v.problems, problemOf("WEIR_NATS_CONTEXT", err))
		}
		if ways > 0 || inAddress {
			c.without(slices.Concat(signIns, []string{"password", "token", "user_seed"})...)
		}
		if env.NatsCert != "" || env.NatsKey != "" {
			c.without("cert", "key")
		}
	}
	of := ofContext{v: v, context: c, settings: s}
	s.NATSURL = given(of, "WEIR_NATS_URL", env.NatsURL, "url", "", itself, natsURL)
	s.NATSCreds = given(of, "WEIR_NATS_CREDS", env.NatsCreds, "creds", "", fileOf, secretFile)
	s.NATSCA = given(of, "WEIR_NATS_CA", env.NatsCA, "ca", "", fileOf, readableFile)
	s.NATSInbox = given(of, "WEIR_NATS_INBOX", env.NatsInbox, "inbox_prefix", "_INBOX", itself, inboxPrefix)
	s.NATSSignIn = SignIn{
		Nkey:     given(of, "WEIR_NATS_NKEY", env.NatsNkey, "nkey", "", fileOf, secretFile),
		User:     given(of, "WEIR_NATS_USER", env.NatsUser, "user", "", wordOf, secretWord),
		Password: given(of, "WEIR_NATS_PASSWORD", env.NatsPassword, "password", "", wordOf, secretWord),
		Cert:     given(of, "WEIR_NATS_CERT", env.NatsCert, "cert", "", fileOf, readableFile),
		Key:      given(of, "WEIR_NATS_KEY", env.NatsKey, "key", "", fileOf, readableFile),
		Token:    given(of, "WEIR_NATS_CONTEXT", "", "token", "", wordOf, secretWord),
		JWT:      given(of, "WEIR_NATS_CONTEXT", "", "user_jwt", "", wordOf, secretWord),
		Seed:     given(of, "WEIR_NATS_CONTEXT", "", "user_seed", "", wordOf, secretWord),
		TLSFirst: c.first,
	}
	v.whole(s, env, ways, inAddress)
	return s
}

// whole refuses an incomplete sign-in, and two ways where a server takes one.
func (v *variables) whole(s *Settings, env environment, ways int, inAddress bool) {
	if ways > 1 || ways == 1 && env.NatsCreds == "" && inAddress {
		v.fail("WEIR_NATS_CREDS, WEIR_NATS_NKEY, WEIR_NATS_USER", "there are several ways to sign in", "set one of them, and no user in WEIR_NATS_URL")
	}
	if in := s.NATSSignIn; env.NatsCert != "" && in.Key == "" || env.NatsKey != "" && in.Cert == "" {
		v.fail("WEIR_NATS_CERT, WEIR_NATS_KEY", "a client's certificate is of no use without its key, nor the key without it", "set both")
	}
	if env.NatsPassword != "" && s.NATSSignIn.User == (Secret{}) {
		v.fail("WEIR_NATS_PASSWORD", "there is no user whose password it is", "set WEIR_NATS_USER")
	}
}

// ofContext supplies a context's fields in place of variables that are not set.
type ofContext struct {
	v        *variables
	context  natsContext
	settings *Settings
}

// given is variable for a variable that a context's field may replace. expand converts the field.
func given[T any](of ofContext, name, text, field, fallback string, expand func(string) (string, error), parse func(string) (T, error)) T {
	said := of.context.fields[field]
	if text != "" || said == "" {
		return variable(of.v, name, text, fallback, parse)
	}
	if of.settings.ofContext == nil {
		of.settings.ofContext = map[string]string{}
	}
	of.settings.ofContext[name] = field
	var got T
	expanded, err := expand(said)
	if err == nil {
		got, err = parse(expanded)
	}
	if err != nil {
		p := problemOf("WEIR_NATS_CONTEXT", err)
		p.Message = fmt.Sprintf("%s in %s: %s", field, of.context.path, p.Message)
		of.v.problems = append(of.v.problems, p)
	}
	return got
}

func itself(text string) (string, error) { return text, nil }

// secretWord reads a user's name or password, or a reference to it. The reference must resolve; it is resolved again
// for each connection. No message quotes it.
func secretWord(text string) (Secret, error) {
	template, err := ParseTemplate(text)
	if err != nil {
		return Secret{}, err
	}
	if _, err := template.Resolve(); err != nil {
		return Secret{}, refuse("let the reference name a file or variable that this process can read", "%s", err)
	}
	return Secret{text: text}, nil
}
