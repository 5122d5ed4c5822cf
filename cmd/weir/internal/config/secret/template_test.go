package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const hidden = "hunter2"

func writeSecret(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTemplateResolves(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	writeSecret(t, file, "from file\n")
	t.Setenv("CONFIG_TEST_SECRET", "from env")
	for text, want := range map[string]string{
		"":                                 "",
		"plain $ text {}":                  "plain $ text {}",
		"Bearer ${env:CONFIG_TEST_SECRET}": "Bearer from env",
		"${file:" + file + "}":             "from file",
		"${env:CONFIG_TEST_SECRET}${file:" + file + "}!": "from envfrom file!",
	} {
		template := mustTemplate(t, text)
		if got, err := template.Resolve(); err != nil || got != want {
			t.Errorf("%q resolves to %q (%v), want %q", text, got, err, want)
		}
		if template.String() != text {
			t.Errorf("%q is written %q", text, template)
		}
		if template.HasReference() != strings.Contains(text, "${") {
			t.Errorf("%q has a reference: %v", text, template.HasReference())
		}
	}
}

func TestTemplateFollowsRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	template := mustTemplate(t, "${file:"+file+"}")
	if _, err := template.Resolve(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file resolves: %v", err)
	}
	for _, c := range []struct{ content, want, refused string }{
		{content: "one", want: "one"},
		{content: "two\n", want: "two"},
		{content: "three\r\n", want: "three"},
		{content: "", refused: "is empty"},
		{content: "\n", refused: "is empty"},
		{content: hidden + "\n\n", refused: "line break"},
		{content: hidden + "\r", refused: "line break"},
		{content: hidden + "\nX-Injected: 1", refused: "line break"},
		{content: hidden + "\x00", refused: "control character"},
		{content: strings.Repeat("a", maxSecret), want: strings.Repeat("a", maxSecret)},
		{content: strings.Repeat(hidden, maxSecret), refused: "is longer than 16KiB"},
	} {
		writeSecret(t, file, c.content)
		got, err := template.Resolve()
		switch {
		case c.refused == "" && (err != nil || got != c.want):
			t.Errorf("%.20q resolves to %.20q (%v)", c.content, got, err)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%.20q resolves with %v, want the message %q", c.content, err, c.refused)
		case c.refused != "" && (got != "" || strings.Contains(err.Error(), hidden)):
			t.Errorf("%.20q is told in %q, %v", c.content, got, err)
		}
	}
	if _, err := mustTemplate(t, "${file:"+filepath.Dir(file)+"}").Resolve(); err == nil {
		t.Error("a directory resolves")
	}
}

func TestTemplateRefusesVariables(t *testing.T) {
	template := mustTemplate(t, "${env:CONFIG_TEST_SECRET}")
	if _, err := template.Resolve(); err == nil || err.Error() != "environment variable CONFIG_TEST_SECRET is not set" {
		t.Errorf("a variable that is not set resolves with %v", err)
	}
	for _, text := range []string{"", hidden + "\r\nX-Injected: 1", hidden + "\n"} {
		t.Setenv("CONFIG_TEST_SECRET", text)
		if got, err := template.Resolve(); err == nil || got != "" || strings.Contains(err.Error(), hidden) {
			t.Errorf("%q resolves to %q, %v", text, got, err)
		}
	}
}

// TestTemplateShowsNoSecret checks that a template shows no secret, in whichever way it is printed.
func TestTemplateShowsNoSecret(t *testing.T) {
	t.Setenv("CONFIG_TEST_SECRET", hidden)
	template := mustTemplate(t, "Bearer ${env:CONFIG_TEST_SECRET}")
	if got, err := template.Resolve(); err != nil || got != "Bearer "+hidden {
		t.Fatalf("resolves to %q, %v", got, err)
	}
	type named struct {
		Name  string
		Value Template
	}
	header := named{Name: "Authorization", Value: template}
	encoded, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("header", "value", template, "header", header, "pointer", &template)
	for _, shown := range []string{
		string(encoded), logged.String(), fmt.Sprint(header), fmt.Sprintf("%v %+v %#v %s %q", header, header, header, template, template),
		fmt.Sprintf("%+v %#v", &header, []Template{template}),
	} {
		if strings.Contains(shown, hidden) {
			t.Errorf("the secret is shown in %s", shown)
		}
		if !strings.Contains(shown, "${env:CONFIG_TEST_SECRET}") {
			t.Errorf("the reference is not shown in %s", shown)
		}
	}
}

func mustTemplate(t *testing.T, text string) Template {
	t.Helper()
	parsed, err := ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
