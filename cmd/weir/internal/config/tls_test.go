package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/bucket/certtest"
	"weir/cmd/weir/internal/config/secret"
)

// TestTLSOfAnAPI checks that weir checks the files of an api's TLS as it checks secrets, and that no message quotes
// their content.
func TestTLSOfAnAPI(t *testing.T) {
	a, dir := certtest.New(t), t.TempDir()
	cert, key := certtest.Write(t, dir, a.Sign(time.Now().Add(time.Hour)))
	with := func(fields string) *Config {
		return parseText(t, "apis:\n  a:\n    url: https://a.example.com\n    tls: {"+fields+"}\n    bucket: {rate: 1/s, capacity: 1}\n")
	}
	all := fmt.Sprintf("ca_file: %s, cert_file: %s, key_file: %s", a.File, cert, key)
	c := with(all)
	if missing := c.MissingSecrets(nil); len(missing) > 0 {
		t.Fatal(missing)
	}
	got, err := c.APIs[0].TLS.Read()
	if err != nil || got.RootCAs == nil || len(got.Certificates) != 1 {
		t.Fatalf("the files are read as %+v, %v", got, err)
	}
	for fields, want := range map[string]string{
		"ca_file: " + key:                                  "has no certificate",
		"ca_file: " + dir:                                  "not a regular file",
		"ca_file: " + dir + "/none":                        "no such file",
		"cert_file: " + key + ", key_file: " + cert:        "are no certificate and its key",
		"cert_file: " + a.File + ", key_file: " + key + "": "are no certificate and its key",
	} {
		missing := with(fields).MissingSecrets(nil)
		if len(missing) != 1 || !strings.Contains(missing[0].Message, want) || strings.Contains(missing[0].Message, "PRIVATE") {
			t.Errorf("%s: %v", fields, missing)
		}
	}
	if missing := c.MissingSecrets(secret.NewScope(nil, c.References())); len(missing) > 0 {
		t.Errorf("what the own file names is not allowed: %v", missing)
	}
	missing := with("ca_file: " + dir + "/none").MissingSecrets(secret.NewScope(nil, nil))
	if len(missing) != 1 || !strings.Contains(missing[0].Fix, "WEIR_SECRETS") || strings.Contains(missing[0].Message, "no such file") {
		t.Errorf("a file that was not allowed is reported as %v", missing)
	}
	if len(c.Diff(with("ca_file: "+a.File))) == 0 {
		t.Error("another certificate is no difference")
	}
}

// TestRenewedCertificate checks that replaced files are read again, and that a certificate without its key is ignored
// meanwhile.
func TestRenewedCertificate(t *testing.T) {
	a, dir, half := certtest.New(t), t.TempDir(), t.TempDir()
	first := a.Sign(time.Now().Add(time.Minute))
	cert, key := certtest.Write(t, dir, first)
	source := (&TLS{CertFile: cert, KeyFile: key}).Source()
	serial := func() string {
		c, err := source()
		if err != nil {
			t.Fatal(err)
		}
		return c.Certificates[0].Leaf.SerialNumber.String()
	}
	if got := serial(); got != first.Leaf.SerialNumber.String() {
		t.Fatalf("the first is %s", got)
	}
	second := a.Sign(time.Now().Add(time.Hour))
	newCert, newKey := certtest.Write(t, half, second)
	if err := os.Rename(newCert, cert); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != first.Leaf.SerialNumber.String() {
		t.Errorf("while its key is not there the new one is shown: %s", got)
	}
	if err := os.Rename(newKey, key); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != second.Leaf.SerialNumber.String() {
		t.Errorf("after the renewal %s is shown", got)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != second.Leaf.SerialNumber.String() {
		t.Errorf("while a file is away %s is shown", got)
	}
	if _, err := (&TLS{CAFile: filepath.Join(dir, "none")}).Source()(); err == nil {
		t.Error("a file that never was there is no error")
	}
}
