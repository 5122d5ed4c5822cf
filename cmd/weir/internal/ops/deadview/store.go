package deadview

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/deadletter"
)

// Store gives access to the dead letters of a server. Its errors have the exit codes of commands.
type Store struct {
	*deadletter.Browser
	c *connect.Connection
}

// Open opens the letters. It fails with deadletter.ErrNoStream if weir has never stored a letter.
func Open(ctx context.Context, c *connect.Connection) (*Store, error) {
	b, err := deadletter.OpenBrowser(ctx, c.JetStream)
	if errors.Is(err, deadletter.ErrNoStream) {
		return nil, cli.NotFound(err)
	}
	return &Store{b, c}, c.Explain(err)
}

// ParseSeq reads the sequence of a letter.
func ParseSeq(text string) (uint64, error) {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seq == 0 {
		return 0, cli.Usage(fmt.Errorf("%q is not the number of a dead letter; `weir dead ls` lists them", text))
	}
	return seq, nil
}

// Letter returns one letter with its body.
func (s *Store) Letter(ctx context.Context, seq uint64) (*deadletter.Kept, error) {
	k, err := s.Get(ctx, seq)
	if errors.Is(err, deadletter.ErrNoLetter) {
		return nil, cli.NotFound(&deadletter.MissingError{Seq: seq})
	}
	return &k, s.c.Explain(err)
}

// Bound limits a selection to the letters that exist now. It fails if a letter named by its sequence does not exist.
func (s *Store) Bound(ctx context.Context, chosen deadletter.Selection) (*deadletter.Scope, error) {
	scope, err := s.Scope(ctx, chosen)
	var missing *deadletter.MissingError
	if errors.As(err, &missing) {
		return nil, cli.NotFound(err)
	}
	return scope, s.c.Explain(err)
}

// None returns the error for a filter that selects no letter.
func None(f deadletter.Filter) error {
	if f == (deadletter.Filter{}) {
		return cli.NotFound(errors.New("there are no dead letters"))
	}
	return cli.NotFound(errors.New("no dead letter matches"))
}
