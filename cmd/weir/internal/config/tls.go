package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// TLS says how weir verifies an https api, and which certificate weir presents. Empty paths mean the machine's
// authorities and no certificate.
type TLS struct {
	CAFile            string // the only authorities that weir trusts to sign the api's certificate, in PEM
	CertFile, KeyFile string // the certificate that weir presents, in PEM: both or neither; they may be one file
}

// maxPEM bounds a file of certificates, in bytes. All authorities of a machine take a fourth of it.
const maxPEM = 1 << 20

// section returns the fields that say how a is verified.
func (t *TLS) section(a *API) field.Section {
	path := field.Free("a full path", fullPath)
	return field.Section{
		Fields: []field.Field{
			{
				Name: "ca_file", Is: field.One(&t.CAFile, path),
				Means: "authorities in PEM. weir trusts only certificates that they signed",
			},
			{
				Name: "cert_file", Is: field.One(&t.CertFile, path),
				Means: "weir's certificate for the API (mutual TLS), in PEM, with the intermediate certificates",
			},
			{
				Name:      "key_file",
				Is:        field.One(&t.KeyFile, path),
				Otherwise: "that of `cert_file`",
				Absent:    func() { t.KeyFile = t.CertFile },
				Means:     "the certificate's key",
			},
		},
		Check: func(f field.Fields) {
			switch {
			case !f.Clean():
			case *t == TLS{}:
				f.Fail("names no file", "write ca_file, or cert_file and key_file, or remove the field")
			case t.CertFile == "" && t.KeyFile != "":
				f.Place("key_file").Fail("is the key of no certificate", "write cert_file too")
			case a.URL != nil && a.URL.Scheme != "https":
				f.Fail("means nothing without TLS", "write url: https://…, or remove the field")
			}
			r := field.Reference{Check: func() error {
				_, err := t.Read()
				return err
			}}
			for _, file := range t.files() {
				r.Parts = append(r.Parts, secret.InFile(file))
			}
			f.Refer(r)
		},
	}
}

// fullPath reads an absolute path of a file, and cleans it.
func fullPath(text string) (string, error) {
	if !filepath.IsAbs(text) || strings.ContainsAny(text, "\x00\r\n") {
		return "",
			problem.Refuse("write it from the root on: /etc/weir/ca.pem", "%s is not the full path of a file",
				problem.Quote(text))
	}
	return filepath.Clean(text), nil
}

func (t *TLS) files() []string {
	if t == nil {
		return nil
	}
	return slices.DeleteFunc([]string{t.CAFile, t.CertFile, t.KeyFile}, func(file string) bool { return file == "" })
}

// Read reads the files. Its errors name the files and quote nothing of them. A nil TLS returns the defaults.
func (t *TLS) Read() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t == nil {
		return c, nil
	}
	if t.CAFile != "" {
		text, err := readPEM(t.CAFile)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("file %s has no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := readPEM(t.CertFile)
		if err != nil {
			return nil, err
		}
		key, err := readPEM(t.KeyFile)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("files %s and %s are no certificate and its key, in PEM", t.CertFile, t.KeyFile)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// readPEM reads a file of at most maxPEM bytes.
func readPEM(path string) ([]byte, error) {
	file, err := secret.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("file %s cannot be read: %w", path, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("file %s cannot be read", path)
	case len(text) > maxPEM:
		return nil, fmt.Errorf("file %s is longer than %s", path, grammar.FormatSize(maxPEM))
	}
	return text, nil
}

// Source returns a function that reads the files again after they were replaced, so a renewed certificate takes effect
// with the next connection. While the files cannot be used, for example between the replacement of a certificate and of
// its key, the function returns the last good configuration. It is safe for concurrent use.
func (t *TLS) Source() func() (*tls.Config, error) {
	var (
		mu   sync.Mutex
		last *tls.Config
		seen []os.FileInfo
	)
	return func() (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		now, err := t.stat()
		if last != nil && (err != nil || sameFiles(now, seen)) {
			return last, nil
		}
		c, errRead := t.Read()
		if err := errors.Join(err, errRead); err != nil {
			if last != nil {
				return last, nil
			}
			return nil, err
		}
		last, seen = c, now
		return c, nil
	}
}

func (t *TLS) stat() ([]os.FileInfo, error) {
	var all []os.FileInfo
	for _, file := range t.files() {
		info, err := os.Stat(file)
		if err != nil {
			return nil, fmt.Errorf("file %s cannot be read", file)
		}
		all = append(all, info)
	}
	return all, nil
}

func sameFiles(a, b []os.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}

// String names the files, or is empty if there are none. Values with the same text are equal.
func (t *TLS) String() string {
	if t == nil {
		return ""
	}
	return strings.Join([]string{t.CAFile, t.CertFile, t.KeyFile}, ", ")
}
