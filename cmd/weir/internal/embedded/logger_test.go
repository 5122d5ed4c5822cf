package embedded

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestOutdatedIndexIsToldOnce: what the server says after a kill -9 is told once and not as a warning, and nothing else
// that it warns of is lost.
func TestOutdatedIndexIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	l := &logger{log: slog.New(slog.NewTextHandler(&out, nil))}
	l.Warnf("Filestore [WEIR_sms_0] Stream state outdated, last block has additional entries, will rebuild")
	l.Warnf("Filestore [WEIR_sms_1] Stream state detected prior state, could not locate msg block %d", 1)
	l.Warnf("Filestore [WEIR_sms_1] Recovering stream state from index errored: %v", "prior state file")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO") || !strings.Contains(got, "built anew from the messages") {
		t.Errorf("an outdated index is told as\n%s", got)
	}
	out.Reset()
	l.Warnf("Plaintext passwords detected, use nkeys or bcrypt")
	if out.Len() > 0 {
		t.Errorf("the password that nobody needs is told as\n%s", out.String())
	}
	l.Warnf("Filestore [WEIR_sms_0] indexCacheBuf corrupt state in %s", "1.blk")
	l.Warnf("Filestore [WEIR_sms_0] Recovering stream state from index errored: %v", "corrupt state file")
	l.Warnf("JetStream resource limits exceeded for server")
	if got := out.String(); strings.Count(got, "level=WARN") != 3 {
		t.Errorf("three warnings are told as\n%s", got)
	}
}
