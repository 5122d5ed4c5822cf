package environment

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// natsContext is the part of a context of the nats command that weir uses: where a server is and how to sign in. The
// zero value is no context. weir does not use jsm's package natscontext for the same file: it links an expression
// language and all schemas of NATS, and runs programs that a context names.
type natsContext struct {
	path   string            // of its file
	fields map[string]string // only texts that are not empty
	first  bool              // TLS begins before the server's first message
}

// signIns are the fields that identify the user, in the order in which the nats command checks them. Only the first one
// present counts. A token is sent in addition.
var signIns = []string{"user", "creds", "nkey", "user_jwt"}

// elsewhere are fields that make the nats command connect in a way that weir does not support. weir refuses a context
// with one of them: without the field weir could connect to another place, or as another user.
var elsewhere = []string{"nsc", "socks_proxy", "jetstream_domain", "jetstream_api_prefix", "windows_cert_store"}

// natsContextNamed reads the context called name. Its errors name the file, but quote nothing of its content.
func natsContextNamed(name string) (natsContext, error) {
	if strings.ContainsAny(name, `/\`) || strings.Contains(name, "..") {
		return natsContext{},
			problem.Refuse("write a name that nats context ls shows", "%s is no name of a context", problem.Quote(name))
	}
	directory := os.Getenv("XDG_CONFIG_HOME")
	if directory == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return natsContext{}, problem.Refuse("set XDG_CONFIG_HOME", "where contexts are kept is not known: %s", err)
		}
		directory = filepath.Join(home, ".config")
	}
	c := natsContext{path: filepath.Join(directory, "nats", "context", name+".json"), fields: map[string]string{}}
	text, err := secret.ReadSecret(c.path)
	if err != nil {
		return natsContext{}, problem.Refuse("write a name that nats context ls shows, or set XDG_CONFIG_HOME", "%s", err)
	}
	return c, c.read(text)
}

func (c *natsContext) read(text string) error {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &all) != nil {
		return problem.Refuse("have the nats command write it: nats context save", "%s is not a JSON object", c.path)
	}
	for name, value := range all {
		var field string
		if json.Unmarshal(value, &field) == nil && field != "" {
			c.fields[name] = field
		}
	}
	_ = json.Unmarshal(all["tls_first"], &c.first) // false if it is absent
	for _, name := range elsewhere {
		if c.fields[name] != "" {
			return problem.Refuse("take it out of the context, or set the variables of weir in its place",
				"%s says %s, which weir does not go by", c.path, name)
		}
	}
	if c.fields["url"] == "" {
		c.fields["url"] = "nats://127.0.0.1:4222" // default of the nats command
	}
	if i := slices.IndexFunc(signIns, func(name string) bool { return c.fields[name] != "" }); i >= 0 {
		c.without(signIns[i+1:]...)
	}
	return nil
}

// without removes the fields called names.
func (c *natsContext) without(names ...string) {
	for _, name := range names {
		delete(c.fields, name)
	}
}

// fileOf returns the file's path in a field of a context. The field may begin with file:// or ~, and may contain
// variables.
func fileOf(text string) (string, error) {
	if scheme := schemeOf(text); scheme != "" && scheme != "file" {
		return "", problem.Refuse("name a file", "weir does not read %s references", scheme)
	}
	text = os.ExpandEnv(strings.TrimPrefix(text, "file://"))
	if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(text, "~") {
		text = home + text[1:]
	}
	return text, nil
}

// wordOf returns the value of a field of a context as a text that Template reads: the value itself, or a reference to a
// file.
func wordOf(text string) (string, error) {
	if schemeOf(text) == "" {
		return text, nil
	}
	path, err := fileOf(text)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return "${file:" + path + "}", err
}

// schemeOf returns the scheme of a field that refers to a value kept elsewhere, or "" for a plain value.
func schemeOf(text string) string {
	scheme, _, is := strings.Cut(text, ":")
	if scheme = strings.ToLower(scheme); is && slices.Contains([]string{"file", "op", "nsc", "env", "data"}, scheme) {
		return scheme
	}
	return ""
}
