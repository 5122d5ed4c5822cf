package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"time"

	"weir/bucket/redisstore"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of waits, and thresholds of findings.
const (
	reachWait    = 5 * time.Second
	clockApart   = time.Second
	certExpires  = 14 * 24 * time.Hour
	fullFraction = 0.875 // the used part of the store from which on the intake answers 503
)

// server examines the NATS server: its free room, its clock, what it would lose in a power cut, and its certificate.
func (e *examination) server(ctx context.Context) {
	if e.Connection == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	asking, done := e.Connection.Denied.Tolerate(bounded)
	defer done()
	account, err := e.Connection.JetStream.AccountInfo(asking)
	if err != nil {
		e.watch("use the credentials of an operator or viewer", "the server at %s does not tell how full it is: %v", e.Connection.At, err)
	} else if most := account.Limits.MaxStore; most > 0 && float64(account.Store) > fullFraction*float64(most) {
		e.bad("make room: results.max_age, `weir dead purge`, or a larger store", "the store is full to %d percent: intake answers 503", 100*int64(account.Store)/most)
	} else {
		e.fine("the store has %d MiB of jobs, results, letters and records", account.Store>>20)
	}
	of := e.clocks(asking)
	if account != nil {
		e.durability(ctx, account.Domain, of)
	}
	e.natsCertificates()
}

// clocks compares this machine's clock with the server's. It returns the stream by which it compares them, nil if the
// stream is not known.
func (e *examination) clocks(ctx context.Context) (of *jetstream.StreamInfo) {
	begun := time.Now()
	s, err := e.Connection.JetStream.Stream(ctx, "KV_"+connect.ConfigBucket)
	trip := time.Since(begun)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		e.watch("start `weir serve`", "weir has not run on the server at %s", e.Connection.At)
	case errors.Is(err, stream.ErrNoLeader):
		e.watch("start the NATS servers that do not run, or mend the connections between them", "no leader answers for weir's configuration at %s, so its clock is not compared", e.Connection.At)
	case err != nil:
		e.watch("use the credentials of an operator or viewer", "the server at %s does not tell its time: %v", e.Connection.At, err)
	default:
		of = s.CachedInfo()
		apart := of.TimeStamp.Sub(begun.Add(trip / 2)).Abs()
		if apart > clockApart+trip {
			e.bad("run NTP on both machines", "this machine's clock and the server's are %s apart: calendar limits, deadlines and --since are wrong by that much", apart.Round(time.Millisecond))
			return of
		}
		e.fine("this machine's clock agrees with the server's, to %s", max(apart, trip).Round(time.Millisecond))
	}
	return of
}

// redis checks whether Redis can hold the limits. Dial checks the version of Redis, and that Redis evicts nothing.
func (e *examination) redis(ctx context.Context) {
	if !e.Settings.RedisURL.IsSet() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	client, err := redisstore.Dial(ctx, e.Settings.RedisURL.Reveal())
	if err != nil {
		e.bad("see the reason; weir needs a Redis that evicts nothing (maxmemory-policy noeviction)", "WEIR_REDIS_URL %s: %v", e.Settings.RedisURL, err)
		return
	}
	_ = client.Close()
	e.fine("Redis at %s answers, and evicts nothing", e.Settings.RedisURL)
	e.redisCertificate(ctx)
}

// ways checks the connection to each API. It makes no call.
func (e *examination) ways(ctx context.Context) {
	if e.Config == nil {
		return
	}
	seen := map[string]bool{}
	for i := range e.Config.APIs {
		a := &e.Config.APIs[i]
		if at := a.URL.Scheme + "://" + a.URL.Host + " " + a.TLS.String(); !seen[at] && ctx.Err() == nil {
			seen[at] = true
			e.way(ctx, a)
		}
	}
}

// tlsFix returns the fix for a failed handshake with an API.
func tlsFix(api string, err error) string {
	var notTLS tls.RecordHeaderError
	var elsewhere x509.HostnameError
	switch {
	case errors.As(err, &notTLS):
		return "begin apis." + api + ".url with http://, or name the port where the api speaks TLS"
	case errors.As(err, &elsewhere):
		return "name in apis." + api + ".url the host that the certificate is for, or have the certificate mended"
	}
	return "have its certificate mended, or name its CA by apis." + api + ".tls.ca_file"
}

func (e *examination) way(ctx context.Context, a *config.API) {
	api, to := a.Name, a.URL
	ctx, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	host, port := to.Hostname(), to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
		e.bad("correct apis."+api+".url, or the name servers of this machine", "api %s: the name %s is not known here: %v", api, host, err)
		return
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		e.bad("let this machine reach it: look at firewalls and at apis."+api+".url", "api %s: no connection to %s:%s: %v", api, host, port, err)
		return
	}
	defer func() { _ = conn.Close() }()
	if to.Scheme != "https" {
		e.fine("api %s: %s:%s takes connections, without TLS", api, host, port)
		return
	}
	trust, err := a.TLS.Read()
	if err != nil {
		e.bad("name existing files, or run weir doctor where `weir serve` runs", "api %s: apis.%s.tls: %v", api, api, err)
		return
	}
	trust.ServerName = host
	secured := tls.Client(conn, trust)
	if err := secured.HandshakeContext(ctx); err != nil {
		e.bad(tlsFix(api, err), "api %s: no TLS with %s:%s: %v", api, host, port, err)
		return
	}
	e.certificate("api "+api+": the certificate of "+net.JoinHostPort(host, port), "tell the operators of the api", secured.ConnectionState().PeerCertificates)
	for _, own := range trust.Certificates {
		e.certificate("api "+api+": the certificate "+a.TLS.CertFile+", which weir shows it,", "replace the file: weir reads it at its next connection", []*x509.Certificate{own.Leaf})
	}
}

// certificate reports until when a chain of certificates is valid. The certificate that expires first decides.
func (e *examination) certificate(what, fix string, chain []*x509.Certificate) {
	if len(chain) == 0 {
		return
	}
	ends := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(ends) {
			ends = c.NotAfter
		}
	}
	switch left := time.Until(ends); {
	case left <= 0:
		e.bad(fix, "%s has ended at %s: no new connection is made", what, ends.UTC().Format(time.RFC3339))
	case left < certExpires:
		e.watch(fix, "%s ends in %d hours, at %s: then no new connection is made", what, int(left.Hours()), ends.UTC().Format(time.RFC3339))
	default:
		e.fine("%s holds for %d more days", what, int(left.Hours()/24))
	}
}

// natsCertificates checks the NATS server's certificate, and the client certificate that weir presents.
func (e *examination) natsCertificates() {
	if state, err := e.Connection.Conn.TLSConnectionState(); err == nil {
		e.certificate("the certificate of the NATS server at "+e.Connection.At, "renew it on the server: weir takes the new one at its next connection", state.PeerCertificates)
	}
	in := e.Settings.NATSSignIn
	if in.Cert == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(in.Cert, in.Key)
	if err != nil {
		e.bad("name a certificate and its key", "%s and %s are no certificate and its key: %v", in.Cert, in.Key, err)
		return
	}
	if own, err := x509.ParseCertificate(pair.Certificate[0]); err == nil {
		e.certificate("the certificate "+in.Cert+", which weir shows NATS,", "replace the file: weir reads it at its next connection", []*x509.Certificate{own})
	}
}

// redisCertificate checks the certificate of a Redis that weir reaches over TLS. It ignores errors, because redis has
// already reported them.
func (e *examination) redisCertificate(ctx context.Context) {
	at, err := url.Parse(e.Settings.RedisURL.Reveal())
	if err != nil || at.Scheme != "rediss" {
		return
	}
	port := at.Port()
	if port == "" {
		port = "6379"
	}
	dialer := tls.Dialer{Config: &tls.Config{ServerName: at.Hostname(), MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), port))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if secured, ok := conn.(*tls.Conn); ok {
		e.certificate("the certificate of Redis", "renew it on its server", secured.ConnectionState().PeerCertificates)
	}
}
