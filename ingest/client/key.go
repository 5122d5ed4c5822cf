package client

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKeyBytes bounds a key, so that its token (at most three times as long) fits every subject and control line.
const MaxKeyBytes = 128

// NoToken is the token for "no key" and "no api". The key "_" itself is written %5F, so the two never collide.
const NoToken = "_"

const upperHex = "0123456789ABCDEF"

// noName is the token of every name longer than MaxKeyBytes. weir stores nothing under such a name, so a search finds
// nothing. The name itself could exceed NATS's longest control line, and the server would close the connection.
const noName = "%"

// Token writes a key, or any name, as one subject token: every byte other than A-Z a-z 0-9 - _ becomes %XX. ParseToken
// reverses it. All names longer than MaxKeyBytes share one token, which ParseToken refuses.
func Token(key string) string {
	switch {
	case key == "":
		return NoToken
	case key == NoToken:
		return "%5F"
	case len(key) > MaxKeyBytes:
		return noName
	}
	return Escape(key)
}

// Escape writes a text with %XX for every byte other than A-Z a-z 0-9 - _.
func Escape(key string) string {
	escapes := 0
	for i := 0; i < len(key); i++ {
		if !plainByte(key[i]) {
			escapes++
		}
	}
	if escapes == 0 {
		return key
	}
	var b strings.Builder
	b.Grow(len(key) + 2*escapes)
	for i := 0; i < len(key); i++ {
		if c := key[i]; plainByte(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

// ParseToken reverses Token. It fails if Token does not write this token.
func ParseToken(token string) (string, error) {
	if token == NoToken {
		return "", nil
	}
	key := unescape(token)
	if token == noName || Token(key) != token {
		return "", fmt.Errorf("%q is not a key token", clip(token))
	}
	return key, nil
}

// KeyFromSubject returns the key in the tokens after the api in a producer's subject. %XX stands for a byte, so a
// producer can name keys with spaces or wildcards, and can publish to a token that it read in one of weir's subjects.
// Both spellings are the same key. A % without two hexadecimal digits stands for itself.
func KeyFromSubject(tokens string) string { return unescape(tokens) }

// CheckKey returns an error if a key is not valid.
func CheckKey(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("the key has %d bytes, at most %d are allowed", len(key), MaxKeyBytes)
	case !utf8.ValidString(key):
		return errors.New("the key is not valid UTF-8")
	}
	return nil
}

// maxAPIBytes bounds an api's name.
const maxAPIBytes = 64

// CheckAPI returns an error if a text is not a valid name of an api.
func CheckAPI(name string) error {
	if name == "" || len(name) > maxAPIBytes || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return fmt.Errorf("an api's name has 1 to %d of a-z, 0-9, '-' and '_', this has %d bytes", maxAPIBytes, len(name))
	}
	return nil
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := hexValue(s[i+1]), hexValue(s[i+2])
			if hi >= 0 && lo >= 0 {
				b = append(b, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// HeaderText writes a key as the value of a header: unchanged, or as its token if a header cannot carry it. "No key"
// and the key "_" look the same there; the subject distinguishes them.
func HeaderText(key string) string {
	if key == "" {
		return NoToken
	}
	for i := 0; i < len(key); i++ {
		if key[i] < ' ' || key[i] == 0x7f {
			return Escape(key)
		}
	}
	if key[0] == ' ' || key[len(key)-1] == ' ' {
		return Escape(key)
	}
	return key
}
