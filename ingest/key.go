package ingest

import (
	"fmt"

	"weir/ingest/client"
)

// MaxKeyBytes bounds a key, so that its token (at most three times as long) fits every subject and control line.
const MaxKeyBytes = client.MaxKeyBytes

// NoToken is the token for "no key" and "no api". The key "_" itself is written %5F, so the two never collide.
const NoToken = client.NoToken

// Token writes a key, or any name, as one subject token: every byte other than A-Z a-z 0-9 - _ becomes %XX. Different
// keys have different tokens, and ParseToken reverses it. All names longer than MaxKeyBytes share one token, which
// ParseToken refuses.
func Token(key string) string { return client.Token(key) }

// ParseToken reverses Token. It refuses what Token would not have written.
func ParseToken(token string) (string, error) { return client.ParseToken(token) }

// KeyFromSubject returns the key that the tokens of a producer's subject name. %XX stands for a byte. So a producer can
// name keys with spaces or wildcards, and can publish to a token it read in one of weir's own subjects: both spellings
// of a key are the same bucket. A % that begins no escape stands for itself.
func KeyFromSubject(tokens string) string { return client.KeyFromSubject(tokens) }

// CheckKey reports why a key cannot be used, or nil.
func CheckKey(key string) error { return client.CheckKey(key) }

// CheckAPI reports why a text cannot be the name of an api, or nil.
func CheckAPI(name string) error { return client.CheckAPI(name) }

// CheckChoice reports why an api and a key, either of which may be empty, can choose nothing that is stored, or nil.
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

// HeaderText writes a key for the value of a header: unchanged, or as its token if a header could not carry it
// unchanged. "No key" and the key _ are written alike; the subject distinguishes them.
func HeaderText(key string) string { return client.HeaderText(key) }
