package ingest_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
	"weir/ingest"
)

// anyKey draws keys of any bytes, with many characters that are special in a subject or a token.
func anyKey() *rapid.Generator[string] {
	special := rapid.SampledFrom([]string{"_", "%", "%5F", "%5f", "%%", "%2", ".", "*", ">", " ", "é", "\x00", "\xff", "a", "-"})
	return rapid.OneOf(
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.SliceOf(special), func(parts []string) string { return strings.Join(parts, "") }),
		rapid.String(),
	)
}

// checkToken checks everything that is promised of a key's token.
func checkToken(t interface{ Fatalf(string, ...any) }, key string) {
	token := ingest.Token(key)
	if len(key) > ingest.MaxKeyBytes {
		if back, err := ingest.ParseToken(token); err == nil || len(token) > 1 {
			t.Fatalf("a key of %d bytes has the token %q, which reads as %q", len(key), token, back)
		}
		return
	}
	if back, err := ingest.ParseToken(token); err != nil || back != key {
		t.Fatalf("the key %q has the token %q, which reads as %q (%v)", key, token, back, err)
	}
	if back := ingest.KeyFromSubject(token); key != "" && back != key {
		t.Fatalf("the key %q has the token %q, and a producer who publishes there means %q", key, token, back)
	}
	if (token == ingest.NoToken) != (key == "") {
		t.Fatalf("the key %q has the token %q", key, token)
	}
	for i := 0; i < len(token); i++ {
		switch c := token[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		case c == '%' && i+2 < len(token) && isUpperHex(token[i+1]) && isUpperHex(token[i+2]):
			i += 2
		default:
			t.Fatalf("the token %q of the key %q holds %q", token, key, c)
		}
	}
	if len(token) > max(1, 3*len(key)) {
		t.Fatalf("the token %q is more than three times as long as its key", token)
	}
}

func isUpperHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'F' }

func TestTokenIsOnePlainToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkToken(t, anyKey().Draw(t, "key")) })
}

func TestDifferentKeysHaveDifferentTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyKey().Draw(t, "a"), anyKey().Draw(t, "b")
		if len(a) <= ingest.MaxKeyBytes && (a == b) != (ingest.Token(a) == ingest.Token(b)) {
			t.Fatalf("%q and %q have the tokens %q and %q", a, b, ingest.Token(a), ingest.Token(b))
		}
	})
}

func TestParseTokenTakesOnlyWhatTokenWrites(t *testing.T) {
	for _, token := range []string{"", "%5f", "%41", "a.b", "*", ">", "a b", "%", "%5", "%ZZ", "é", "__%5F.", "%5F%"} {
		if key, err := ingest.ParseToken(token); err == nil {
			t.Errorf("%q was read as the key %q", token, key)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		token := anyKey().Draw(t, "token")
		if key, err := ingest.ParseToken(token); err == nil && ingest.Token(key) != token {
			t.Fatalf("%q was read as the key %q, whose token is %q", token, key, ingest.Token(key))
		}
	})
}

func TestTokenSpellings(t *testing.T) {
	for _, c := range []struct{ key, token string }{
		{"", "_"},
		{"_", "%5F"},
		{"__", "__"},
		{"_a", "_a"},
		{"vip-1", "vip-1"},
		{"tenant.42", "tenant%2E42"},
		{"a b", "a%20b"},
		{"*", "%2A"},
		{">", "%3E"},
		{"%", "%25"},
		{"%5F", "%255F"},
		{"é", "%C3%A9"},
		{"\n\x00", "%0A%00"},
	} {
		if got := ingest.Token(c.key); got != c.token {
			t.Errorf("the key %q has the token %q, want %q", c.key, got, c.token)
		}
	}
}

// TestKeyFromSubject checks the keys that producers may write after weir.jobs.<api>.
func TestKeyFromSubject(t *testing.T) {
	for _, c := range []struct{ tokens, key string }{
		{"vip-1", "vip-1"},
		{"tenant.42", "tenant.42"},
		{"tenant%2E42", "tenant.42"},
		{"a%20b", "a b"},
		{"%5f", "_"},
		{"_", "_"},
		{"100%", "100%"},
		{"%zz", "%zz"},
		{"%4", "%4"},
		{"", ""},
		{"%C3%A9", "é"},
		{"é", "é"},
	} {
		if got := ingest.KeyFromSubject(c.tokens); got != c.key {
			t.Errorf("%q names the key %q, want %q", c.tokens, got, c.key)
		}
	}
}

func TestCheckKey(t *testing.T) {
	for _, good := range []string{"a", "_", " ", "*", "é", strings.Repeat("k", 128), strings.Repeat("é", 64), "\x00"} {
		if err := ingest.CheckKey(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("k", 129), strings.Repeat("é", 64) + "k", "\xff", "a\xc3"} {
		if ingest.CheckKey(bad) == nil {
			t.Errorf("%q was taken for a key", bad)
		}
	}
}

// TestHeaderText checks that HeaderText writes any key as a value that a header can carry.
func TestHeaderText(t *testing.T) {
	for _, c := range []struct{ key, text string }{
		{"", "_"}, {"_", "_"}, {"vip 1", "vip 1"}, {"a.b", "a.b"}, {"é", "é"}, {"a\r\nb", "a%0D%0Ab"}, {" a", "%20a"}, {"a ", "a%20"}, {"\x7f", "%7F"},
	} {
		if got := ingest.HeaderText(c.key); got != c.text {
			t.Errorf("the key %q stands in a header as %q, want %q", c.key, got, c.text)
		}
	}
}

func FuzzKeyToken(f *testing.F) {
	for _, key := range []string{"", "_", "%5F", "tenant.42", "a b", "*.>", "é", "\xff\x00", "%2", "100%"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		checkToken(t, key)
		if back, err := ingest.ParseToken(key); err == nil && ingest.Token(back) != key {
			t.Fatalf("%q was read as %q", key, back)
		}
		if once := ingest.KeyFromSubject(key); len(once) > len(key) {
			t.Fatalf("%q grew to %q", key, once)
		}
	})
}
