package httpcall

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestTellingNamesNoAddress checks that a letter about a failed call names neither host nor address, and still
// says what happened.
func TestTellingNamesNoAddress(t *testing.T) {
	refused := &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443},
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
	reset := &net.OpError{
		Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 4711}, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443},
		Err: os.NewSyscallError("read", syscall.ECONNRESET),
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{refused, "connection refused"},
		{fmt.Errorf("the answer broke off: %w", reset), "connection reset by peer"},
		{&url.Error{Op: "Post", URL: "https://u:p@10.0.0.1/?token=t0p", Err: refused}, "connection refused"},
		{&net.OpError{Op: "dial", Net: "tcp", Addr: refused.Addr, Err: os.ErrDeadlineExceeded}, "it took too long"},
		{&net.DNSError{Err: "no such host", Name: "pay.internal", Server: "10.0.0.53:53", IsNotFound: true}, "no such host"},
		{&net.DNSError{Err: "i/o timeout", Name: "pay.internal", Server: "10.0.0.53:53", IsTimeout: true}, "did not answer in time"},
		{&net.DNSError{Err: "server misbehaving", Name: "pay.internal", Server: "10.0.0.53:53"}, "cannot be resolved"},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Host: "pay.internal", Certificate: &x509.Certificate{}}}, "another host"},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "unknown authority"},
		{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, "expired"},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "does not speak TLS"},
		{errors.New("proxy at http://10.0.0.1:3128/?token=t0p said no to [::1]:443"), "said no"},
		{errors.New("write 10.0.0.2:4711->10.0.0.1:443: broken pipe"), "broken pipe"},
		{errors.New(`malformed HTTP response "t0p"`), "not HTTP"},
		{io.ErrUnexpectedEOF, "the api closed the connection"},
		{fmt.Errorf("read: %w", io.EOF), "the api closed the connection"},
		{errTimeout, errTimeout.Error()},
	} {
		got := ForLetters(c.err).Error()
		if !strings.Contains(got, c.want) {
			t.Errorf("%v is told as %q, which does not say %q", c.err, got, c.want)
		}
		for _, secret := range []string{"10.0.0", "internal", "t0p", "://", "::1", "u:p"} {
			if strings.Contains(got, secret) {
				t.Errorf("%v is told as %q, which names %s", c.err, got, secret)
			}
		}
	}
}
