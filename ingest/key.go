package ingest

import (
	"fmt"

	"weir/ingest/client"
)

// MaxKeyBytes bounds a key, so that its token (at most three times as long) fits every subject and control line.
const MaxKeyBytes = client.MaxKeyBytes

// NoToken is the token for "no key" and "no api". The key "_" itself is written %5F, so the two never collide.
const NoToken = client.NoToken

// Token writes a key, or any name, as one subject token: every byte other than A-Z a-z 0-9 - _ becomes %XX. ParseToken
// reverses it. All names longer than MaxKeyBytes share one token, which ParseToken refuses.
func Token(key string) string { return client.Token(key) }

// ParseToken reverses Token. It fails if Token does not write this token.
func ParseToken(token string) (string, error) { return client.ParseToken(token) }

// KeyFromSubject returns the key in the tokens after the api in a producer's subject. %XX stands for a byte, so a
// producer can name keys with spaces or wildcards, and can publish to a token that it read in one of weir's subjects.
// Both spellings are the same key. A % without two hexadecimal digits stands for itself.
func KeyFromSubject(tokens string) string { return client.KeyFromSubject(tokens) }

// CheckKey returns an error if a key is not valid.
func CheckKey(key string) error { return client.CheckKey(key) }

// CheckAPI returns an error if a text is not a valid name of an api.
func CheckAPI(name string) error { return client.CheckAPI(name) }

// CheckChoice returns an error if a filter's api or key is invalid, so that it could choose nothing. Both may be empty.
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

// HeaderText writes a key as the value of a header: unchanged, or as its token if a header cannot carry it. "No key"
// and the key "_" look the same there; the subject distinguishes them.
func HeaderText(key string) string { return client.HeaderText(key) }
