package httpcall

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// ForLetters returns an error that letters and logs may show: their readers may not know an api's addresses. It removes
// urls, hosts and addresses, and the parts of an unreadable answer that net/http quotes.
func ForLetters(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var (
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		call        *os.SyscallError
		op          *net.OpError
	)
	switch {
	case errors.As(err, &name):
		return fmt.Errorf("the api's host name cannot be resolved: %s", resolving(name))
	case errors.As(err, &certificate):
		return fmt.Errorf("the api's certificate cannot be trusted: %s", distrust(certificate))
	case errors.As(err, &record):
		return errors.New("the api does not speak TLS")
	case errors.As(err, &call):
		return call // such as "connect: connection refused"
	case errors.As(err, &op) && op.Timeout():
		return fmt.Errorf("%s: it took too long", op.Op)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return closed{err}
	case strings.Contains(err.Error(), "server response headers exceeded"):
		return errLongHead
	}
	if text := err.Error(); strings.ContainsRune(text, '"') || strings.Contains(text, "malformed") {
		return errNotHTTP
	} else if plain := withoutAddresses(text); plain != text {
		return errors.New(plain)
	}
	return err
}

// closed is the error of a connection that the api has closed. Its text is in plain words.
type closed struct{ error }

// Error implements error.
func (closed) Error() string { return "the api closed the connection" }

// Unwrap returns net/http's own error.
func (c closed) Unwrap() error { return c.error }

func resolving(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "no such host"
	case err.IsTimeout:
		return "the name server did not answer in time"
	}
	return "the name server did not answer as it should"
}

func distrust(err error) string {
	var (
		host    x509.HostnameError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &host):
		return "it is for another host"
	case errors.As(err, &unknown):
		return "it is signed by an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return outOfTime(invalid.Cert, time.Now())
	}
	return "it is not valid"
}

// outOfTime says when a certificate expired, or when it becomes valid.
func outOfTime(cert *x509.Certificate, now time.Time) string {
	switch {
	case cert == nil:
		return "it has expired or is not valid yet"
	case now.Before(cert.NotBefore):
		return fmt.Sprintf("it is valid from %s on: look at this machine's clock", cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("it has expired at %s: the api's operator must renew it; or this machine's clock is wrong", cert.NotAfter.UTC().Format(time.RFC3339))
}

// withoutAddresses replaces the addresses and urls in an error's text.
func withoutAddresses(text string) string {
	words := strings.Split(text, " ")
	for i, word := range words {
		for part := range strings.SplitSeq(word, "->") {
			if strings.Contains(part, "://") || isAddress(strings.Trim(part, ":,;()[]'")) || isAddress(strings.Trim(part, ":,;()'")) {
				words[i] = "…"
			}
		}
	}
	return strings.Join(words, " ")
}

func isAddress(text string) bool {
	_, err := netip.ParseAddrPort(text)
	if err != nil {
		_, err = netip.ParseAddr(text)
	}
	return err == nil
}
