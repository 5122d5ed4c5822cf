package weirtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ExternalSettingsWith returns ExternalSettings with further variables.
func ExternalSettingsWith(t *testing.T, url, file string, env map[string]string) *config.Settings {
	t.Helper()
	all := map[string]string{"WEIR_NATS_URL": url, "WEIR_CONFIG": file, "WEIR_REPLICAS": "1", "WEIR_HTTP_LISTEN": ""}
	for name, text := range env {
		if strings.HasPrefix(name, "WEIR_") {
			all[name] = text
		}
	}
	return settingsOf(t, all)
}

// Occupy creates a stream that is not weir's on a subject.
func Occupy(t *testing.T, url, subject string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, err = OperatorsAt(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}
}

// SelfSigned writes a certificate for a name, and the key next to it.
func SelfSigned(t *testing.T, path, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	WriteFile(t, path, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	WriteFile(t, path+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	return path
}
