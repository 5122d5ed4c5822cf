package config

import (
	"fmt"
	"slices"
	"strings"
)

// SignIn is how a server of somebody else's is told who weir is, beside credentials, its own certificate's authority and the prefix of
// inboxes. Files are read for each connection, so that a key that was changed holds from the next one on.
type SignIn struct {
	Nkey           Secret // path of a file with a user's seed
	User, Password Secret // each a template: the word itself, or references to where it is kept
	Cert, Key      string // paths of a client's certificate and its key: both or neither

	// What only a context of the nats command says.
	Token, JWT, Seed Secret // templates
	TLSFirst         bool   // TLS begins before the server has said anything
}

// SignsIn reports whether a server is shown anything that says who weir is, but for what stands in its address.
func (s *Settings) SignsIn() bool {
	return s.NATSCreds.IsSet() || s.NATSSignIn != SignIn{TLSFirst: s.NATSSignIn.TLSFirst}
}

// SaidBy is where a setting of a variable comes from, in words: the variable, or a field of a context.
func (s *Settings) SaidBy(variable string) string {
	if field, ok := s.ofContext[variable]; ok {
		return fmt.Sprintf("%s in the context %s (WEIR_NATS_CONTEXT)", field, s.NATSContext)
	}
	return variable
}

// natsServer reads what the variables, and then the context, say of a server and of how it is asked for entry. Of the settings it fills
// those fields.
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

// whole refuses a sign-in of which a part is missing, and two where a server takes one.
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

// ofContext says what a context has in the place of variables that are not set.
type ofContext struct {
	v        *variables
	context  natsContext
	settings *Settings
}

// given is variable for one in whose place a context may have a field, which means what expand makes of it.
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

// secretWord reads a user's name or password, or where it is kept. What it refers to must be there; it is read again for each connection.
// No message quotes it.
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
