package torture

import (
	"fmt"
	"os"
	"path/filepath"

	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// The files in which weir stores credentials.
const (
	operatorCreds = "operator.creds"
	producerCreds = "producer.creds"
)

// httpToken authorises requests for weir's metrics.
const httpToken = "0123456789abcdef"

// makeCredentials writes the credentials that the first weir would write, because producers and the witness connect
// before it exists.
func (s *servers) makeCredentials() error {
	if !s.o.Asks() {
		return nil
	}
	if err := os.MkdirAll(s.dir(), 0o700); err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	for _, name := range []string{operatorCreds, producerCreds} {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return fmt.Errorf("credentials: %w", err)
		}
		seed, err := pair.Seed()
		if err != nil {
			return fmt.Errorf("credentials: %w", err)
		}
		if err := os.WriteFile(filepath.Join(s.dir(), name), seed, 0o600); err != nil {
			return fmt.Errorf("credentials: %w", err)
		}
	}
	return nil
}

// asOperator returns the options for connections of the judges. They read streams that only weir and its operators may
// read.
func (s *servers) asOperator(others ...nats.Option) ([]nats.Option, error) {
	if !s.o.Asks() {
		return others, nil
	}
	return s.shown(operatorCreds, others)
}

// asProducer returns the options for connections of the producers.
func (s *servers) asProducer(others ...nats.Option) ([]nats.Option, error) {
	if !s.o.Asks() || s.o.Auth != plan.AuthRequired {
		return others, nil
	}
	return s.shown(producerCreds, others)
}

func (s *servers) shown(file string, others []nats.Option) ([]nats.Option, error) {
	option, err := nats.NkeyOptionFromSeed(filepath.Join(s.dir(), file))
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	return append(others, option), nil
}
