package secret

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
)

// maxSecret bounds a secret's file, in bytes. Its content becomes part of one header.
const maxSecret = 16 << 10

// Template is a header's value in which references, ${env:NAME} or ${file:/path}, stand for secrets. It never holds the
// secrets, so printing, logging or encoding it shows only the references. The zero Template is an empty text.
type Template struct {
	parts []Part
}

// Part is a literal text, or a reference to an environment variable or a file. Exactly one field is set.
type Part struct {
	literal string
	env     string
	file    string
}

// ParseTemplate reads a header's value. It knows only the two forms of references: any other "${" is an error. Its
// errors do not quote the text, which may hold a secret by mistake.
func ParseTemplate(text string) (Template, error) {
	const fix = "write ${env:NAME} or ${file:/path}"
	var t Template
	for rest := text; rest != ""; {
		literal, reference, found := strings.Cut(rest, "${")
		if literal != "" {
			if err := headerValue(literal); err != nil {
				return Template{}, err
			}
			t.parts = append(t.parts, Part{literal: literal})
		}
		if !found {
			break
		}
		inside, after, closed := strings.Cut(reference, "}")
		kind, name, _ := strings.Cut(inside, ":")
		switch {
		case !closed:
			return Template{}, problem.Refuse(fix, `a "${" has no "}"`)
		case kind == "env" && isVariable(name):
			t.parts = append(t.parts, Part{env: name})
		case kind == "file" && filepath.IsAbs(name) && !strings.ContainsAny(name, "\x00\r\n"):
			t.parts = append(t.parts, Part{file: filepath.Clean(name)})
		case kind == "env":
			return Template{}, problem.Refuse(fix, "a ${env:…} does not name a variable")
		case kind == "file":
			return Template{}, problem.Refuse(fix, "a ${file:…} does not name a file by its full path")
		default:
			return Template{}, problem.Refuse(fix, `a "${" begins no reference that weir knows`)
		}
		rest = after
	}
	return t, nil
}

// headerValue refuses a text that cannot stand in an HTTP header. Its error does not quote the text.
func headerValue(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return problem.Refuse("write one line of plain text", "the value has a line break or another control character")
	}
	return nil
}

func isVariable(name string) bool {
	return name != "" && (name[0] < '0' || name[0] > '9') && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// HasReference reports whether any part is a reference.
func (t Template) HasReference() bool {
	for _, p := range t.parts {
		if p.literal == "" {
			return true
		}
	}
	return false
}

// InFile returns the reference to a file.
func InFile(path string) Part { return Part{file: path} }

// IsReference reports whether the whole text is one reference.
func (t Template) IsReference() bool { return len(t.parts) == 1 && t.HasReference() }

// References returns the references in the text.
func (t Template) References() []Part {
	return slices.DeleteFunc(slices.Clone(t.parts), func(p Part) bool { return p.literal != "" })
}

// Start returns the text in front of the first reference.
func (t Template) Start() string {
	if len(t.parts) == 0 {
		return ""
	}
	return t.parts[0].literal
}

// Secrets returns the present values of those references that resolve, for code that must keep them out of what it
// stores.
func (t Template) Secrets() []string {
	var secrets []string
	for _, p := range t.parts {
		if text, err := p.Resolve(); p.literal == "" && err == nil {
			secrets = append(secrets, text)
		}
	}
	return secrets
}

// Resolve returns the value with every reference replaced. It reads variables and files on each call, so a rotated
// secret takes effect with the next call. The error contains no part of a secret.
func (t Template) Resolve() (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		text, err := p.Resolve()
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Resolve returns the text that the part stands for. An empty secret is an error.
func (p Part) Resolve() (string, error) {
	switch {
	case p.env != "":
		text, ok := os.LookupEnv(p.env)
		if !ok {
			return "", fmt.Errorf("environment variable %s is not set", p.env)
		}
		return checkSecret(text, "environment variable "+p.env)
	case p.file != "":
		text, err := ReadSecret(p.file)
		if err != nil {
			return "", err
		}
		return checkSecret(text, "file "+p.file)
	default:
		return p.literal, nil
	}
}

// ReadSecret reads a file of at most maxSecret bytes, and cuts the newline at its end.
func ReadSecret(path string) (string, error) {
	file, err := OpenRegular(path)
	if err != nil {
		return "", fmt.Errorf("file %s cannot be read: %w", path, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("file %s cannot be read", path)
	}
	if len(data) > maxSecret {
		return "", fmt.Errorf("file %s is longer than %s", path, grammar.FormatSize(maxSecret))
	}
	if text, ok := strings.CutSuffix(string(data), "\r\n"); ok {
		return text, nil
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}

// OpenRegular opens a regular file. It refuses a pipe, which would block the call that needs the secret. Its error does
// not contain the path.
func OpenRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	var file *os.File
	if err == nil {
		file, err = os.Open(path)
	}
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	return file, err
}

// checkSecret refuses a secret that is empty or has a control character. source names the secret in the message.
func checkSecret(text, source string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("%s is empty", source)
	}
	if headerValue(text) != nil {
		return "", fmt.Errorf("%s has a line break or another control character", source)
	}
	return text, nil
}

// String returns the text with its references, never their values.
func (t Template) String() string {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.String())
	}
	return b.String()
}

// String returns the literal text, or the reference and never its value.
func (p Part) String() string {
	switch {
	case p.env != "":
		return "${env:" + p.env + "}"
	case p.file != "":
		return "${file:" + p.file + "}"
	default:
		return p.literal
	}
}

// GoString returns the text with its references, never their values.
func (t Template) GoString() string { return fmt.Sprintf("secret.Template(%q)", t.String()) }

// MarshalJSON encodes the text with its references, never their values.
func (t Template) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// LogValue returns the text with its references, never their values.
func (t Template) LogValue() slog.Value { return slog.StringValue(t.String()) }
