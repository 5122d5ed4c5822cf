package environment

import (
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// SignIn is how weir signs in to an external server, besides Settings.NATSCreds. weir reads the files for each
// connection, so a changed key takes effect with the next one.
type SignIn struct {
	Nkey           secret.Value // path of a file with a user's seed
	User, Password secret.Value // templates: the text itself, or references to it
	Cert, Key      string       // paths of a client certificate and its key: both or neither

	// Only a nats context can set these.
	Token, JWT, Seed secret.Value // templates
	TLSFirst         bool         // TLS begins before the server's first message
}

// SignsIn reports whether weir sends a server anything that identifies it, apart from what the address has.
func (s *Settings) SignsIn() bool {
	return s.NATSCreds.IsSet() || s.NATSSignIn != SignIn{TLSFirst: s.NATSSignIn.TLSFirst}
}

// SaidBy returns what set a variable, for messages: the variable itself, or a field of a nats context.
func (s *Settings) SaidBy(variable string) string {
	if field, ok := s.ofContext[variable]; ok {
		return fmt.Sprintf("%s in the context %s (WEIR_NATS_CONTEXT)", field, s.NATSContext)
	}
	return variable
}

// ways are the variables that each identify weir's user.
var ways = []string{"WEIR_NATS_CREDS", "WEIR_NATS_NKEY", "WEIR_NATS_USER"}

// signsIn returns how many of ways are set, and whether the address has a user.
func (v *variables) signsIn() (several int, inAddress bool) {
	for _, name := range ways {
		if v.texts[name] != "" {
			several++
		}
	}
	return several, strings.Contains(v.texts["WEIR_NATS_URL"], "@")
}

// context reads the nats context, without the fields that variables replace.
func (v *variables) context() (c natsContext) {
	name := v.texts["WEIR_NATS_CONTEXT"]
	if name == "" {
		return c
	}
	c, err := natsContextNamed(name)
	if err != nil {
		v.problems = append(v.problems, problem.Of("WEIR_NATS_CONTEXT", err))
	}
	if several, inAddress := v.signsIn(); several > 0 || inAddress {
		c.without(slices.Concat(signIns, []string{"password", "token", "user_seed"})...)
	}
	if v.texts["WEIR_NATS_CERT"] != "" || v.texts["WEIR_NATS_KEY"] != "" {
		c.without("cert", "key")
	}
	return c
}

// from sets a variable from a field of the nats context. expand converts the field's value.
func (v *variables) from(c natsContext, field, name string, expand func(string) (string, error), is field.Kind) {
	if v.settings.ofContext == nil {
		v.settings.ofContext = map[string]string{}
	}
	v.settings.ofContext[name] = field
	text, err := expand(c.fields[field])
	if err == nil {
		err = is.Parse(text)
	}
	if err != nil {
		p := problem.Of("WEIR_NATS_CONTEXT", err)
		p.Message = fmt.Sprintf("%s in %s: %s", field, c.path, p.Message)
		v.problems = append(v.problems, p)
	}
}

// whole reads the settings that only a nats context can set. It refuses an incomplete sign-in, and two ways to sign in.
func (v *variables) whole(c natsContext) {
	in := &v.settings.NATSSignIn
	in.TLSFirst = c.first
	for _, of := range []struct {
		field string
		at    *secret.Value
	}{{"token", &in.Token}, {"user_jwt", &in.JWT}, {"user_seed", &in.Seed}} {
		if c.fields[of.field] != "" {
			v.from(c, of.field, "WEIR_NATS_CONTEXT", wordOf, field.One(of.at, secretOf("", secretWord)))
		}
	}
	if several, inAddress := v.signsIn(); several > 1 || several == 1 && v.texts["WEIR_NATS_CREDS"] == "" && inAddress {
		v.fail(strings.Join(ways, ", "), "there are several ways to sign in", "set one of them, and no user in WEIR_NATS_URL")
	}
	if v.texts["WEIR_NATS_CERT"] != "" && in.Key == "" || v.texts["WEIR_NATS_KEY"] != "" && in.Cert == "" {
		v.fail("WEIR_NATS_CERT, WEIR_NATS_KEY", "a client's certificate is of no use without its key, nor the key without it",
			"set both")
	}
	if v.texts["WEIR_NATS_PASSWORD"] != "" && in.User == (secret.Value{}) {
		v.fail("WEIR_NATS_PASSWORD", "there is no user whose password it is", "set WEIR_NATS_USER")
	}
}

// secretWord reads a user's name or password, or a reference to it. The reference must resolve now; weir resolves it
// again for each connection. Errors do not quote the text.
func secretWord(text string) (secret.Value, error) {
	template, err := secret.ParseTemplate(text)
	if err != nil {
		return secret.Value{}, err
	}
	if _, err := template.Resolve(); err != nil {
		return secret.Value{},
			problem.Refuse("let the reference name a file or variable that this process can read", "%s", err)
	}
	return secret.New(text, ""), nil
}

// bearerToken reads the token itself, or a reference to it. It resolves the reference once, so a new token needs a
// restart. Its errors do not quote the text.
func bearerToken(text string) (secret.Value, error) {
	template, err := secret.ParseTemplate(text)
	if err != nil {
		return secret.Value{}, err
	}
	token, err := template.Resolve()
	if err != nil {
		return secret.Value{},
			problem.Refuse("let the reference name a file or variable that this process can read", "%s", err)
	}
	if !secret.IsBearer(token) {
		return secret.Value{}, problem.Refuse(secret.BearerFix+", or ${file:/path}", "is no bearer token")
	}
	return secret.New(token, ""), nil
}
