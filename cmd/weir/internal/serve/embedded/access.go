package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// The files with credentials in the data directory. They exist if Auth is not Open. Only weir's user may read them.
const (
	OperatorCreds = connect.OperatorCreds // allows everything
	ProducerCreds = "producer.creds"      // allows publishing jobs, reading and listening
)

// Auth says which clients a Server admits, and what these clients may do.
type Auth int

const (
	// Open requires no credentials: every client may do everything.
	Open Auth = iota
	// Operators lets every client publish jobs, read and listen, and requires the operators' credentials for everything
	// else.
	Operators
	// Required requires credentials from every client: the operators' or the producers'.
	Required
)

// admit sets the server's options so that the server authenticates clients by the credentials in dir. It creates
// credentials that are missing. clients bounds how many producers may be connected.
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

// publicKey returns the user name of the credentials in a file, and creates the file if it is missing. If every user
// may read the file, publicKey replaces it, because its credentials are no longer secret. If only the file's group may
// read it, publicKey keeps the credentials and takes the right from the group: Kubernetes gives it to the group of the
// pod (fsGroup) whenever it mounts the volume.
func publicKey(path string, log *slog.Logger) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return makeCredentials(path)
	case err != nil:
		return "", fmt.Errorf("credentials: %w", err)
	case info.Mode().Perm()&0o007 != 0:
		log.Warn("other users could read these credentials; new ones replace them", "file", path, "mode", info.Mode().Perm().String())
		return makeCredentials(path)
	case info.Mode().Perm()&0o070 != 0:
		if err := os.Chmod(path, 0o600); err != nil {
			return "", fmt.Errorf("credentials: %w", err)
		}
		log.Warn("the group of this file could read these credentials; they stay valid, and from now on only weir's user reads the file. "+
			"If you do not trust the group, remove the file and restart weir: it makes new credentials", "file", path, "mode", info.Mode().Perm().String())
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

// makeCredentials creates a user's key, stores it in a file atomically, and returns the user name.
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

// writeSynced writes a file that only its user may read, and syncs it. Without the sync a power cut could leave an
// empty file.
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

// Access returns the options with which this process connects to the server. If the server requires credentials, the
// options contain those of the operators.
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
