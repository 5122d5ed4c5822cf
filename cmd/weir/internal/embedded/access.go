package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"weir/cmd/weir/internal/connect"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// The files of the data directory that hold credentials, where a Server asks for them. Only weir's user may read them.
const (
	OperatorCreds = connect.OperatorCreds // may do everything
	ProducerCreds = "producer.creds"      // may publish jobs, read and listen
)

// Auth says whom a Server lets in, and what he may do.
type Auth int

const (
	// Open asks nobody who he is: everybody may do everything.
	Open Auth = iota
	// Operators lets everybody publish jobs, read and listen, and asks for the operators' credentials for all else.
	Operators
	// Required asks everybody for credentials that stand in the data directory.
	Required
)

// admit has the server's options ask who connects, by the credentials in dir. Those that are not there yet are made. clients is how many
// producers may be connected.
func (a Auth) admit(opts *server.Options, dir string, clients int, log *slog.Logger) error {
	if a == Open {
		return nil
	}
	operator, err := publicKey(filepath.Join(dir, OperatorCreds), log)
	if err != nil {
		return err
	}
	producer, err := publicKey(filepath.Join(dir, ProducerCreds), log)
	if err != nil {
		return err
	}
	both, producers, err := accounts(clients)
	if err != nil {
		return err
	}
	opts.Accounts = both
	opts.Nkeys = []*server.NkeyUser{{Nkey: operator}, {Nkey: producer, Account: producers, Permissions: producerRights()}}
	if a == Operators {
		user := anyone(producers)
		opts.Users, opts.NoAuthUser = []*server.User{user}, user.Username
	}
	return nil
}

// publicKey is the name of the user whose credentials stand in a file. A file that others may read is no secret any more: it is
// written anew.
func publicKey(path string, log *slog.Logger) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return makeCredentials(path)
	case err != nil:
		return "", fmt.Errorf("credentials: %w", err)
	case info.Mode().Perm()&0o077 != 0:
		log.Warn("others could read these credentials: new ones take their place", "file", path, "mode", info.Mode().Perm().String())
		return makeCredentials(path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("credentials: %w", err)
	}
	pair, err := nkeys.ParseDecoratedNKey(text)
	if err != nil {
		return "", fmt.Errorf("%s holds no credentials: remove it, and weir makes new ones: %w", path, err)
	}
	defer pair.Wipe()
	return pair.PublicKey()
}

// makeCredentials writes a new user's key, whole or not at all.
func makeCredentials(path string) (string, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", fmt.Errorf("credentials: %w", err)
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err != nil {
		return "", fmt.Errorf("credentials: %w", err)
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("credentials: %w", err)
	}
	text := fmt.Sprintf("-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n", seed)
	if err := writeSynced(fresh, []byte(text)); err != nil {
		return "", fmt.Errorf("credentials: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", fmt.Errorf("credentials: %w", err)
	}
	return pair.PublicKey()
}

// writeSynced writes a file that only its user may read, and has it on disk: a power cut would leave an empty one.
func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// Access is how this process connects: as an operator, where credentials are asked for.
func (s *Server) Access() ([]nats.Option, error) {
	if s.auth == Open {
		return nil, nil
	}
	option, err := nats.NkeyOptionFromSeed(filepath.Join(s.dir, OperatorCreds))
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	return []nats.Option{option}, nil
}
