package config

import (
	"log/slog"
	"time"
)

// decoded is a variable that envconfig decodes: the value that P reads from its text, or the error. Decode itself never
// fails, because envconfig ends at the first failure, and all wrong variables must be reported at once.
type decoded[T any, P parser[T]] struct {
	value T
	err   error
	set   bool // to something
}

// parser reads the text of a variable. Its errors name the fix.
type parser[T any] interface {
	parse(text string) (T, error)
}

// Decode implements envconfig.Decoder. An empty variable means its default.
func (d *decoded[T, P]) Decode(text string) error {
	if text != "" {
		var p P
		d.set = true
		d.value, d.err = p.parse(text)
	}
	return nil
}

// or returns the value, or fallback if the variable is not set. It reports an unreadable value under the variable's
// name, and returns zero for it.
func (d *decoded[T, P]) or(v *variables, name string, fallback T) (got T) {
	switch {
	case d.err != nil:
		v.problems = append(v.problems, problemOf(name, d.err))
		return got
	case d.set:
		return d.value
	}
	return fallback
}

// What the variables hold.
type (
	authOf          struct{}
	connectionsOf   struct{}
	durabilityOf    struct{}
	formatOf        struct{}
	instanceOf      struct{}
	levelOf         struct{}
	listenAddressOf struct{}
	memoryOf        struct{}
	partitionsOf    struct{}
	redisOf         struct{}
	replicasOf      struct{}
	rolesOf         struct{}
	secretsOf       struct{}
	timeoutOf       struct{}
	tokenOf         struct{}
)

func (authOf) parse(text string) (NATSAuth, error) {
	return oneOf(AuthOperators, AuthRequired, AuthOpen)(text)
}

func (connectionsOf) parse(text string) (int, error) { return countIn(text, 1_000_000) }

func (durabilityOf) parse(text string) (Durability, error) {
	return oneOf(DurabilityAlways, DurabilityInterval)(text)
}

func (formatOf) parse(text string) (LogFormat, error)     { return oneOf(LogText, LogJSON)(text) }
func (instanceOf) parse(text string) (string, error)      { return instance(text) }
func (levelOf) parse(text string) (slog.Level, error)     { return logLevel(text) }
func (listenAddressOf) parse(text string) (string, error) { return listenAddress(text) }
func (memoryOf) parse(text string) (int64, error)         { return sizeIn(LeastMemory, 1<<50)(text) }
func (partitionsOf) parse(text string) (int, error)       { return countIn(text, 256) }
func (redisOf) parse(text string) (Secret, error)         { return redisURL(text) }
func (replicasOf) parse(text string) (int, error)         { return countIn(text, 5) }
func (rolesOf) parse(text string) ([]Role, error)         { return roles(text) }
func (secretsOf) parse(text string) ([]string, error)     { return secretNames(text) }
func (timeoutOf) parse(text string) (time.Duration, error) {
	return durationIn(0, time.Hour)(text)
}
func (tokenOf) parse(text string) (Secret, error) { return bearerToken(text) }

// countIn reads a whole number from 1 to most.
func countIn(text string, most int64) (int, error) {
	n, err := wholeIn(1, most)(text)
	return int(n), err
}
