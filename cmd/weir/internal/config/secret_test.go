package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// TestSecretScope checks that a configuration can resolve only what the own file of the process refers to and what
// WEIR_SECRETS allows. Other references are not read, and the message does not tell whether they exist.
func TestSecretScope(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"own", "other", "allowed/token", "allowed-not/token"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"SCOPE_TEST_OWN", "SCOPE_TEST_ALLOWED", "SCOPE_TEST_OTHER"} {
		t.Setenv(name, "hunter2")
	}
	with := func(reference string) *Config {
		return parseText(t, fmt.Sprintf("apis:\n  a:\n    url: https://a.example.com\n    headers: {X: %q}\n    bucket: {rate: 1/s, capacity: 1}\n", reference))
	}
	own := with("${env:SCOPE_TEST_OWN}:${file:" + filepath.Join(dir, "own") + "}")
	allowed, err := secret.Names(" SCOPE_TEST_ALLOWED, " + filepath.Join(dir, "allowed") + "/ ")
	if err != nil {
		t.Fatal(err)
	}
	for reference, ok := range map[string]bool{
		"${env:SCOPE_TEST_OWN}": true, "${env:SCOPE_TEST_ALLOWED}": true, "${env:SCOPE_TEST_OTHER}": false, "${env:SCOPE_TEST_NONE}": false,
		"${file:" + dir + "/own}": true, "${file:" + dir + "/other}": false, "${file:" + dir + "/allowed/token}": true,
		"${file:" + dir + "/allowed/../other}": false, "${file:" + dir + "/allowed-not/token}": false, "${file:" + dir + "/none}": false,
		"plain text": true,
	} {
		missing := with(reference).MissingSecrets(secret.NewScope(allowed, own.References()))
		if (len(missing) == 0) != ok {
			t.Errorf("%s: %v", reference, missing)
		}
		if !ok && (!strings.Contains(missing[0].Fix, "WEIR_SECRETS") || strings.Contains(missing[0].Message, "no such file")) {
			t.Errorf("%s: %s", reference, missing[0])
		}
		if n := len(with(reference).MissingSecrets(secret.NewScope(nil, nil))); (n == 0) != (reference == "plain text") {
			t.Errorf("%s, where nothing is allowed: %d missing", reference, n)
		}
	}
	for _, bad := range []string{"a b", "relative/dir", "/", "A,,B", "1A", "/x\ny", "*"} {
		if names, err := secret.Names(bad); err == nil {
			t.Errorf("WEIR_SECRETS may be %q: %q", bad, names)
		}
	}
}

func TestMissingSecrets(t *testing.T) {
	t.Setenv("CONFIG_TEST_SECRET", "hunter2")
	c, err := Parse([]byte(`apis:
  sms:
    url: https://sms.example.com
    bucket: {rate: 1/s, capacity: 1}
    headers:
      Accept: text/plain
      Authorization: "${env:CONFIG_TEST_SECRET}"
      X-Pair: "${env:CONFIG_TEST_ABSENT}:${file:/nowhere/secret}"
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	const path, fix = "apis.sms.headers.X-Pair", "provide it where weir serve runs"
	want := []problem.Problem{
		{Line: 8, Path: path, Message: "environment variable CONFIG_TEST_ABSENT is not set", Fix: fix},
		{Line: 8, Path: path, Message: "file /nowhere/secret cannot be read: no such file or directory", Fix: fix},
	}
	if got := c.MissingSecrets(nil); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("missing are %v, want %v", got, want)
	}
}
