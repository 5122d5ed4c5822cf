package main

import (
	"fmt"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
)

// TestConsoleExplainsLetters: a job that could not be called before its deadline is not explained as one that found its bucket full, and one
// that found it full is.
func TestConsoleExplainsLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, bucket: {rate: 1/h, capacity: 2}}
`)
	r.submit("weir.jobs.pay.a", nil, map[string]string{"Weir-Path": "/a"})
	r.awaitCalls(1)
	r.submit("weir.jobs.pay.a", nil, map[string]string{"Weir-Path": "/a", "Weir-Deadline": "1m"})
	for range 3 {
		r.submit("weir.jobs.pay.a", nil, map[string]string{"Weir-Path": "/a"})
	}
	b := newBrowser(t, r.worker.HTTPAddr())
	for seq, want := range map[int]struct{ says, not string }{
		1: {says: "without the deadline", not: "bucket takes"},
		2: {says: "bucket was full", not: "deadline"},
	} {
		b.open(fmt.Sprintf("/letter?seq=%d", seq))
		b.wait("the letter", `document.querySelector("main .told")`)
		if said := b.text("main .told .quiet"); !strings.Contains(said, want.says) || strings.Contains(said, want.not) {
			t.Errorf("letter %d, %q, is explained as %q", seq, b.text("main .told"), said)
		}
	}
	b.press("?")
	b.wait("the help", `document.querySelector("dialog[open] dl")`)
	if said := b.text("dialog dl"); strings.Contains(said, "=>") || !strings.Contains(said, "Find a job") || !strings.Contains(said, "Redrives") {
		t.Errorf("the keyboard's help says\n%s", said)
	}
	b.open("/")
	b.wait("the letters in the head", `document.querySelector("nav a[href='/letters'] .chip")`)
	if said := b.text("#page"); strings.Contains(said, "1 dead letters") {
		t.Errorf("one letter is told as several:\n%s", said)
	}
}
