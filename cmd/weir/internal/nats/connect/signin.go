package connect

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/secret"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// SignInError reports that weir cannot sign in with a configured file or value.
type SignInError struct {
	SaidBy string // the variable, or the field of a NATS context
	Err    error
}

func (e *SignInError) Error() string { return e.SaidBy + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *SignInError) Unwrap() error { return e.Err }

// said returns an option whose error names the variable or field that requested it.
func said(by string, option nats.Option) nats.Option {
	return func(o *nats.Options) error {
		if err := option(o); err != nil {
			return &SignInError{SaidBy: by, Err: err}
		}
		return nil
	}
}

// signIn returns the options that sign in: one of user, credentials file, nkey or JWT, and also a token if one is set.
func signIn(s *environment.Settings) []nats.Option {
	var opts []nats.Option
	in := s.NATSSignIn
	switch {
	case in.User.IsSet():
		opts = append(opts, said(s.SaidBy("WEIR_NATS_USER"), userOption(in.User, in.Password)))
	case s.NATSCreds.IsSet():
		opts = append(opts, said(s.SaidBy("WEIR_NATS_CREDS"), credentials(s.NATSCreds.Reveal())))
	case in.Nkey.IsSet():
		opts = append(opts, said(s.SaidBy("WEIR_NATS_NKEY"), nkeyOption(in.Nkey.Reveal())))
	case in.JWT.IsSet():
		opts = append(opts, said(s.SaidBy("WEIR_NATS_CONTEXT"), jwtOption(in.JWT, in.Seed)))
	}
	if in.Token.IsSet() {
		opts = append(opts, said(s.SaidBy("WEIR_NATS_CONTEXT"), func(o *nats.Options) error {
			token, err := word(in.Token)()
			if err != nil {
				return err
			}
			return nats.Token(token)(o)
		}))
	}
	return opts
}

// Secured returns the options for TLS, with the certificate that weir presents.
func Secured(s *environment.Settings) []nats.Option {
	var opts []nats.Option
	if s.NATSCA != "" {
		opts = append(opts, said(s.SaidBy("WEIR_NATS_CA"), nats.RootCAs(s.NATSCA)))
	}
	if in := s.NATSSignIn; in.Cert != "" && in.Key != "" {
		opts = append(opts, said(s.SaidBy("WEIR_NATS_CERT")+" and "+s.SaidBy("WEIR_NATS_KEY"), func(o *nats.Options) error {
			if err := nats.ClientCert(in.Cert, in.Key)(o); err != nil {
				return fmt.Errorf("%s and %s are no certificate and its key: %w", in.Cert, in.Key, err)
			}
			return nil
		}))
	}
	if s.NATSSignIn.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts
}

// credentials signs in with a credentials file. The file has only a user's key, as a weir with its own server writes
// it, or also a JWT of the account, as nsc writes it.
func credentials(path string) nats.Option {
	return func(o *nats.Options) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err //nolint:wrapcheck // it names the file
		}
		if _, err = nkeys.ParseDecoratedUserNKey(text); err != nil {
			return fmt.Errorf("%s is no credentials file (nsc generate creds writes one): there is no user's key in it", path)
		}
		if !strings.Contains(string(text), "NATS USER JWT") {
			return nkeyOption(path)(o)
		}
		return nats.UserCredentials(path)(o)
	}
}

// nkeyOption signs in with a user's key, whose seed is in a file: alone, or between marker lines.
func nkeyOption(path string) nats.Option {
	return func(o *nats.Options) error {
		option, err := nats.NkeyOptionFromSeed(path)
		if err != nil {
			return fmt.Errorf("%s has no user's nkey seed, which begins with SU (nk -gen user makes one)", path)
		}
		return option(o)
	}
}

// userOption signs in with a user and a password. Values from files are read again for each connection. If a file
// cannot be read then, the values that were read last are used.
func userOption(user, password secret.Value) nats.Option {
	return func(o *nats.Options) error {
		name, err := word(user)()
		if err != nil {
			return err
		}
		pass, err := word(password)()
		if err != nil {
			return err
		}
		return nats.UserInfoHandler(func() (string, string) { // one connection calls this at a time
			if again, err := word(user)(); err == nil {
				name = again
			}
			if again, err := word(password)(); err == nil {
				pass = again
			}
			return name, pass
		})(o)
	}
}

// jwtOption signs in with a user's JWT and the seed of its key. A bearer JWT needs no seed.
func jwtOption(jwt, seed secret.Value) nats.Option {
	return func(o *nats.Options) error {
		sign := func(nonce []byte) ([]byte, error) {
			if !seed.IsSet() {
				return nil, nil
			}
			text, err := word(seed)()
			if err != nil {
				return nil, err
			}
			pair, err := nkeys.FromSeed([]byte(text))
			if err != nil {
				return nil, errors.New("user_seed is no seed of a key")
			}
			defer pair.Wipe()
			return pair.Sign(nonce)
		}
		if _, err := sign([]byte("nonce")); err != nil {
			return err
		}
		return nats.UserJWT(word(jwt), sign)(o)
	}
}

// word returns a function that resolves a template that may refer to files or variables. An empty template resolves to
// "".
func word(of secret.Value) func() (string, error) {
	return func() (string, error) {
		template, err := secret.ParseTemplate(of.Reveal())
		if err != nil {
			return "", err
		}
		return template.Resolve()
	}
}
