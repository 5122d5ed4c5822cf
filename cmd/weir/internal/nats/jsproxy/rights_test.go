package jsproxy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/nats/connect"
)

// TestRightsOfDeploy compares the users and accounts of deploy/nats with the list of rights. UPDATE_GOLDEN=1 writes
// them into the files.
func TestRightsOfDeploy(t *testing.T) {
	t.Parallel()
	holdToRights(t, "accounts.conf", "\naccounts {\n", "\n  SYS {\n", accountsOf(roles(), Passages(Viewers)))
	holdToRights(t, "nsc.sh", "\nuser \"$ACCOUNT\" producer ", "\naccount \"$VIEWERS\"\n", usersOf(roles()))
	holdToRights(t, "nsc.sh", "\ngive service ", "", giftsOf(Passages(Viewers)))
}

// holdToRights compares the part of a file from begin up to end with the text made from the rights.
func holdToRights(t *testing.T, file, begin, end, want string) {
	t.Helper()
	path := filepath.Join("../../../../../deploy/nats", file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	from, to := strings.Index(text, begin)+1, len(text)
	if end != "" {
		to = strings.Index(text, end) + 1
	}
	if from == 0 || to < from {
		t.Fatalf("%s has no part from %q to %q", path, begin, end)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(text[:from]+want+text[to:]), 0o755); err != nil { //nolint:gosec // it is for everybody
			t.Fatal(err)
		}
		return
	}
	for line := range strings.Lines(want) {
		if !strings.Contains(text[from:to], line) {
			t.Errorf("%s lacks the line %s", path, line)
		}
	}
	if text[from:to] != want {
		t.Errorf("%s has other rights than cmd/weir/internal/nats/jsproxy/rights.go: make rights writes them", path)
	}
}

// accountsOf returns the accounts of weir and of viewers as part of a server's configuration.
func accountsOf(roles []role, passages []Passage) string {
	var b, imports strings.Builder
	b.WriteString("accounts {\n  WEIR {\n    jetstream: {max_file: $NATS_WEIR_STORE}\n    exports: [\n")
	viewer := role{name: "viewer"}
	for _, p := range passages {
		kind, to, more := "service", "", ""
		switch {
		case p.Heard:
			kind = "stream"
			viewer.subscribe = append([]string{p.Asked}, viewer.subscribe...)
		default:
			viewer.publish = append(viewer.publish, right{subjects: []string{p.Asked}})
			if p.Several {
				more = ", response_type: stream"
			}
		}
		if p.Taken != p.Asked {
			to = fmt.Sprintf(", to: %q", p.Asked)
		}
		fmt.Fprintf(&b, "      {%s: %q, accounts: [VIEWERS]%s}\n", kind, p.Taken, more)
		fmt.Fprintf(&imports, "      {%s: {account: WEIR, subject: %q}%s}\n", kind, p.Taken, to)
	}
	fmt.Fprintf(&b, "    ]\n    imports: [{service: {account: SYS, subject: %q}}]\n    users: [\n", connect.SyncRight)
	for _, r := range roles {
		b.WriteString(userOf(r))
	}
	b.WriteString("    ]\n  }\n\n  VIEWERS {\n    imports: [\n" + imports.String() + "    ]\n    users: [\n" + userOf(viewer) + "    ]\n  }\n\n")
	return b.String()
}

func userOf(r role) string {
	quoted := func(subjects []string) string { return `"` + strings.Join(subjects, `", "`) + `"` }
	text := fmt.Sprintf("      {\n        user: %s, password: $NATS_%s_PASSWORD%s\n        permissions {\n          publish: [\n",
		r.name, strings.ToUpper(r.name), comment(r.why, 0))
	for _, given := range r.publish {
		line := quoted(given.subjects)
		text += "            " + line + comment(given.why, 30-len(line)) + "\n"
	}
	return text + "          ]\n          subscribe: [" + quoted(r.subscribe) + "]\n        }\n      }\n"
}

func comment(why string, blanks int) string {
	if why == "" {
		return ""
	}
	return strings.Repeat(" ", max(blanks, 2)) + "# " + why
}

// usersOf returns the commands that create the users of weir's account.
func usersOf(roles []role) (text string) {
	for _, r := range roles {
		text += fmt.Sprintf("user \"$ACCOUNT\" %s", r.name)
		for _, given := range r.publish {
			text += allowed("pub", given.subjects)
		}
		text += allowed("sub", r.subscribe) + "\n\n"
	}
	return text
}

func allowed(what string, subjects []string) (text string) {
	for _, s := range subjects {
		text += fmt.Sprintf(" \\\n  --allow-%s '%s'", what, s)
	}
	return text
}

// giftsOf returns the commands that make the passages available to viewers, and those that create the viewer.
func giftsOf(passages []Passage) (text string) {
	publish, subscribe := "", ""
	for _, p := range passages {
		if p.Heard {
			text += fmt.Sprintf("give stream '%s' '%s'\n", p.Taken, p.Asked)
			subscribe = allowed("sub", []string{p.Asked}) + subscribe
			continue
		}
		text += fmt.Sprintf("give service '%s' '%s' %s\n", p.Taken, p.Asked, map[bool]string{false: "Singleton", true: "Stream"}[p.Several])
		publish += allowed("pub", []string{p.Asked})
	}
	return text + "\nuser \"$VIEWERS\" viewer" + publish + subscribe + "\n"
}
