package httpcall

import (
	"net/http"
	"strings"
	"testing"

	"weir/deadletter"
)

// TestLetterKeepsTheBeginning checks that a letter keeps the beginning of a long answer, and says that the
// answer was longer.
func TestLetterKeepsTheBeginning(t *testing.T) {
	answer := AnswerOf(&API{}, Response{Status: 500, Header: http.Header{}, Body: []byte(strings.Repeat("x", 20<<10))})
	if len(answer.Body) != deadletter.MaxAnswer || !answer.Cut {
		t.Errorf("a letter keeps %d bytes, cut: %v", len(answer.Body), answer.Cut)
	}
}

func TestWithoutSecrets(t *testing.T) {
	const secret = "sk-live-0123456789"
	for body, want := range map[string]string{
		"":                               "",
		"nothing of weir's":              "nothing of weir's",
		"a " + secret + " b " + secret:   "a *** b ***",
		"ends in " + secret[:9]:          "ends in ***",
		"ends in " + secret[:3]:          "ends in " + secret[:3],
		"a short secret is any abc text": "a short secret is any abc text",
	} {
		given := []byte(body)
		if got := withoutSecrets(given, []string{"abc", secret}); string(got) != want {
			t.Errorf("%q becomes %q, want %q", body, got, want)
		}
		if string(given) != body {
			t.Errorf("%q was changed where it stands: a result has it too", body)
		}
	}
}

// TestLetterTellsNoSecret checks that no letter holds secrets of weir that the api has sent back, in its body or
// beside it.
func TestLetterTellsNoSecret(t *testing.T) {
	const secret = "sk-live-0123456789"
	api := &API{Secrets: func() []string { return []string{secret} }}
	answer := AnswerOf(api, Response{Status: 400, Header: http.Header{"Content-Type": {"text/plain; as=" + secret}}, Body: []byte("not " + secret)})
	if text := answer.ContentType + string(answer.Body); strings.Contains(text, secret) || !strings.Contains(text, "text/plain; as=***") {
		t.Errorf("a letter tells %s", text)
	}
}
