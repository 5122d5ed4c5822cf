package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of waiting. A server on a busy machine may get no processor time for some seconds.
const (
	dialTimeout    = 3 * time.Second  // for the server's machine to accept a connection
	Timeout        = 10 * time.Second // for the server to greet, to sign a client in, and to answer a request
	RequestTimeout = 5 * time.Second  // for the replicas to answer one request
)

// Patience returns the options of a connection to a server that may be slow. If no machine answers at the address,
// connecting still fails after three seconds.
func Patience() []nats.Option {
	return []nats.Option{nats.Timeout(Timeout), nats.SetCustomDialer(&net.Dialer{Timeout: dialTimeout})}
}

// DefaultURL is the address that commands use if neither WEIR_NATS_URL nor WEIR_NATS_LISTEN is set.
const DefaultURL = "nats://127.0.0.1:4222"

// InsideName is the name of a server inside weir. A client can tell by it that the server is weir's own.
const InsideName = "weir"

// Connection is a command's connection to the server. The caller must close it. It is safe for concurrent use.
type Connection struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	At        string // the server's address, without credentials
	Denied    *Denials
}

// Dial connects to the server that the environment names.
func Dial() (*Connection, error) {
	settings, err := environment.Read()
	if err != nil {
		return nil, cli.Usage(err)
	}
	return DialAs(settings)
}

// With calls do with a connection to the server that the environment names, and closes it.
func With(do func(c *Connection) error) error {
	c, err := Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

// DialAs connects as the settings say. It tries up to three times: with the credentials of the data directory, without
// found credentials, and as the operator whose credentials the server names. It gives up if the first try times out.
func DialAs(settings *environment.Settings) (*Connection, error) {
	url, at := settings.NATSURL.Reveal(), settings.NATSURL.String()
	if settings.Embedded() {
		url = listening(settings.NATSListen)
		at = url
	}
	to := Address{URL: url, At: at, Start: "`weir serve`", Name: "weir command", Timeout: Timeout, Options: Options(settings)}
	if own := ownCredentials(settings); own != nil {
		c, err := Open(to.with(own))
		if slow := net.Error(nil); err == nil || errors.As(err, &slow) && slow.Timeout() {
			return c, err // a server that did not answer in time will not answer a second time either
		}
	} // the server refused the credentials: it requires none any more, or belongs to another weir
	c, err := Open(to)
	if err != nil || !mayOperate(settings) {
		return c, err
	}
	if own := Found(settings, AskInside(context.Background(), c.Conn, c.Denied)); own != nil {
		if operator, err := Open(to.with(own)); err == nil {
			c.Close()
			return operator, nil
		}
	}
	return c, nil
}

// listening returns an address at which this machine reaches the embedded server, by the address that the server
// listens on. If the server chose its own port, listening returns DefaultURL.
func listening(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "" || port == "0" {
		return DefaultURL
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "nats://" + net.JoinHostPort(host, port)
}

// Address says where and how a command connects.
type Address struct {
	URL     string        // the address, with any credentials in it
	At      string        // the address without credentials, for errors
	Start   string        // what to start if no server answers
	Name    string        // the connection's name, which the server shows to its operators
	Timeout time.Duration // for one request to JetStream
	Options []nats.Option // further options of the connection
}

// with returns the address with one more option.
func (a Address) with(option nats.Option) Address {
	a.Options = append(slices.Clone(a.Options), option)
	return a
}

// Open connects to a server. It blocks for at most the constant Timeout.
func Open(to Address) (*Connection, error) {
	denied := &Denials{}
	opts := append(Patience(), nats.Name(to.Name), nats.MaxReconnects(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { _ = denied.Note(err) }))
	nc, err := nats.Connect(to.URL, append(opts, to.Options...)...)
	if err != nil {
		return nil, cli.Unreachable(Explain(to.At, to.Start, err))
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(to.Timeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	c := &Connection{Conn: nc, JetStream: stream.FromLeader(js), At: to.At, Denied: denied}
	denied.Tell(c.hangUp)
	return c, nil
}

// Close ends the connection.
func (c *Connection) Close() { c.Conn.Close() }

// hangUp closes a connection whose user lacks a right that the command needs. NATS does not answer a forbidden request,
// so the command would otherwise wait until its timeout.
func (c *Connection) hangUp(error) { c.Conn.Close() }

// Control opens the bucket of operators' commands. It fails with exit code 3 if there is none.
func (c *Connection) Control(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := c.JetStream.KeyValue(ctx, ControlBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, cli.NotFound(fmt.Errorf("there is no key-value bucket %s: weir has not run on this server", ControlBucket))
	}
	return kv, c.Explain(err)
}

// Explain gives an error from NATS its exit code, and a remedy if there is one.
func (c *Connection) Explain(err error) error {
	var coded *cli.Exit
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case errors.Is(err, nats.ErrConnectionClosed) && c.Denied.Any():
		return c.Denied.Explain(err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return cli.Unreachable(fmt.Errorf("JetStream does not answer at %s: enable it for this account (nats-server -js), or point WEIR_NATS_URL at the server weir uses", c.At))
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected):
		return cli.Unreachable(fmt.Errorf("there is no connection to the server at %s now: it is tried again, and the log of weir says why it fails", c.At))
	case errors.Is(err, stream.ErrNoLeader):
		return cli.Unreachable(fmt.Errorf("no leader answers at %s: start the NATS servers that do not run, and mend the connections between them: %w", c.At, err))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrConnectionClosed):
		return cli.Unreachable(fmt.Errorf("the server at %s does not answer in time: %w", c.At, err))
	}
	return err
}
