package ingest_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
	"weir/ingest"
)

const testSubjects ingest.Subjects = "weir.test."

// longestControlLine is the longest line that a NATS server accepts by default. A longer one ends the connection.
const longestControlLine = 4096

// TestSubjectsHoldOnlyNames checks that a subject for any api and key has one token for each name, has nothing that
// ends a line or matches other subjects, and is far shorter than a control line.
func TestSubjectsHoldOnlyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		api := strings.Repeat(anyKey().Draw(t, "api"), rapid.IntRange(0, 5000).Draw(t, "times"))
		key := strings.Repeat(anyKey().Draw(t, "key"), rapid.IntRange(0, 5000).Draw(t, "times"))
		subject := testSubjects.Of(api, key)
		if len(subject) > longestControlLine/4 || strings.ContainsAny(subject, " \t\r\n*>") || strings.Count(subject, ".") != 3 {
			t.Fatalf("%d bytes and %d bytes are asked for on %q", len(api), len(key), subject)
		}
		names, ok := testSubjects.Names(subject, 2)
		if unnamed := max(len(api), len(key)) > ingest.MaxKeyBytes; ok == unnamed || ok && (names[0] != api || names[1] != key) {
			t.Fatalf("%q says %q, %v", subject, names, ok)
		}
	})
}

// TestSubjectPatterns checks that the pattern for a subscription matches the subjects that Of builds.
func TestSubjectPatterns(t *testing.T) {
	for got, want := range map[string]string{
		testSubjects.Of("a", ""):              "weir.test.a._",
		testSubjects.Of("a", "x.y"):           "weir.test.a.x%2Ey",
		testSubjects.Of("a\r\nPUB", ">"):      "weir.test.a%0D%0APUB.%3E",
		testSubjects.Below():                  "weir.test.>",
		testSubjects.Below("a"):               "weir.test.a.>",
		testSubjects.Each(1):                  "weir.test.*",
		testSubjects.Each(2):                  "weir.test.*.*",
		testSubjects.Match("", "x.y"):         "weir.test.*.x%2Ey",
		testSubjects.Match("_", "*"):          "weir.test.%5F.%2A",
		testSubjects.Match(ingest.NoName, ""): "weir.test._.*",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, other := range []string{"weir.test.a", "weir.test.a.b.c", "weir.tests.a.b", "weir.test.a.%", "weir.test.a.%5f"} {
		if names, ok := testSubjects.Names(other, 2); ok {
			t.Errorf("%q names %q", other, names)
		}
	}
}

// TestCheckAPI checks which names an api may have.
func TestCheckAPI(t *testing.T) {
	for name, ok := range map[string]bool{
		"sms": true, "credit-check_2": true, "_": true, strings.Repeat("a", 64): true,
		"": false, "Sms": false, "a.b": false, "a b": false, "*": false, strings.Repeat("a", 65): false, strings.Repeat("a", 5000): false,
	} {
		if err := ingest.CheckAPI(name); (err == nil) != ok || err != nil && len(err.Error()) > 200 {
			t.Errorf("%.80q: %v", name, err)
		}
	}
}
