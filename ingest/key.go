package ingest

import (
	"fmt"

	"weir/ingest/client"
)

// MaxKeyBytes bounds a key, so that its token (at most three times as long) fits every subject and control line.
const MaxKeyBytes = client.MaxKeyBytes

// NoToken is the token of "no key" or "no api". The key "_" itself is written %5F, so the two never meet.
const NoToken = client.NoToken

// Token writes a key (or any name) as one subject token: every byte other than A-Z a-z 0-9 - _ becomes %XX.
// Different keys have different tokens, and ParseToken reverses it. A name over MaxKeyBytes is none: all of them have one
// token, which ParseToken refuses.
func Token(key string) string { return client.Token(key) }

// ParseToken is the inverse of Token. It refuses what Token would not have written.
func ParseToken(token string) (string, error) { return client.ParseToken(token) }

// KeyFromSubject reads a key out of the tokens a producer published to. %XX stands for a byte, so that a producer can
// name keys with spaces or wildcards and can publish to the token it read in one of weir's own subjects: both spellings
// of a key are the same bucket. A % that begins no escape is itself.
func KeyFromSubject(tokens string) string { return client.KeyFromSubject(tokens) }

// CheckKey tells why a key cannot be used, or nil.
func CheckKey(key string) error { return client.CheckKey(key) }

// CheckAPI tells why a text cannot be the name of an api, or nil.
func CheckAPI(name string) error { return client.CheckAPI(name) }

// CheckChoice tells why an api and a key, either of which may be empty, can choose nothing that is stored, or nil.
func CheckChoice(api, key string) error {
	if api != "" {
		if err := CheckAPI(api); err != nil {
			return fmt.Errorf("api: %w", err)
		}
	}
	if key != "" {
		if err := CheckKey(key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	return nil
}

// HeaderText writes a key for a header's value: as it is, or, where a header could not carry it unchanged, as its token. No key at all
// is written as the key _ is; the subject tells the two apart.
func HeaderText(key string) string { return client.HeaderText(key) }
