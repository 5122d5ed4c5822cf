package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/gate"
	"weir/cmd/weir/weirtest"
)

// TestDocsOfRights: the users and accounts of deploy/nats are those of the list of rights. UPDATE_GOLDEN=1 writes them into the files.
func TestDocsOfRights(t *testing.T) {
	t.Parallel()
	holdToRights(t, "accounts.conf", "\naccounts {\n", "\n  SYS {\n", accountsOf(gate.Roles(), gate.Passages(gate.Viewers)))
	holdToRights(t, "nsc.sh", "\nuser \"$ACCOUNT\" producer ", "\naccount \"$VIEWERS\"\n", usersOf(gate.Roles()))
	holdToRights(t, "nsc.sh", "\ngive service ", "", giftsOf(gate.Passages(gate.Viewers)))
}

// holdToRights compares the part of a file from begin to before end with what the rights make of it.
func holdToRights(t *testing.T, file, begin, end, want string) {
	t.Helper()
	path := filepath.Join(weirtest.DeployDir, "nats", file)
	text := weirtest.MustRead(t, path)
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
		t.Errorf("%s has other rights than cmd/weir/internal/gate/rights.go: make rights writes them", path)
	}
}

// accountsOf returns the accounts of weir and of viewers, as a server's configuration.
func accountsOf(roles []gate.Role, passages []gate.Passage) string {
	var b, imports strings.Builder
	b.WriteString("accounts {\n  WEIR {\n    jetstream: enabled\n    exports: [\n")
	viewer := gate.Role{Name: "viewer"}
	for _, p := range passages {
		kind, to, more := "service", "", ""
		switch {
		case p.Heard:
			kind = "stream"
			viewer.Subscribe = append([]string{p.Asked}, viewer.Subscribe...)
		default:
			viewer.Publish = append(viewer.Publish, gate.Right{Subjects: []string{p.Asked}})
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
	b.WriteString("    ]\n    users: [\n")
	for _, r := range roles {
		b.WriteString(userOf(r))
	}
	b.WriteString("    ]\n  }\n\n  VIEWERS {\n    imports: [\n" + imports.String() + "    ]\n    users: [\n" + userOf(viewer) + "    ]\n  }\n\n")
	return b.String()
}

func userOf(r gate.Role) string {
	quoted := func(subjects []string) string { return `"` + strings.Join(subjects, `", "`) + `"` }
	text := fmt.Sprintf("      {\n        user: %s, password: $NATS_%s_PASSWORD%s\n        permissions {\n          publish: [\n",
		r.Name, strings.ToUpper(r.Name), comment(r.Why, 0))
	for _, right := range r.Publish {
		line := quoted(right.Subjects)
		text += "            " + line + comment(right.Why, 30-len(line)) + "\n"
	}
	return text + "          ]\n          subscribe: [" + quoted(r.Subscribe) + "]\n        }\n      }\n"
}

func comment(why string, blanks int) string {
	if why == "" {
		return ""
	}
	return strings.Repeat(" ", max(blanks, 2)) + "# " + why
}

// usersOf returns the commands that make the users of weir's account.
func usersOf(roles []gate.Role) (text string) {
	for _, r := range roles {
		text += fmt.Sprintf("user \"$ACCOUNT\" %s", r.Name)
		for _, right := range r.Publish {
			text += allowed("pub", right.Subjects)
		}
		text += allowed("sub", r.Subscribe) + "\n\n"
	}
	return text
}

func allowed(what string, subjects []string) (text string) {
	for _, s := range subjects {
		text += fmt.Sprintf(" \\\n  --allow-%s '%s'", what, s)
	}
	return text
}

// giftsOf returns the commands that let viewers import the passages, and those that make the viewer.
func giftsOf(passages []gate.Passage) (text string) {
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
