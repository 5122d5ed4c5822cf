package soak

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"
)

// linked are the packages of others that weir links on a system: the directories of their code, by their modules and versions.
func linked(t *testing.T, system string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(await.Build(t), "go", "list", "-deps", "-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}|{{.Dir}}|{{$.Dir}}{{end}}{{end}}`, "weir/cmd/weir")
	cmd.Env = append(program.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v", system, err)
	}
	directories := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if of := strings.Split(strings.TrimSpace(line), "|"); len(of) == 3 {
			// A package may have a licence besides that of its module.
			for dir := of[2]; len(dir) >= len(of[1]); dir = filepath.Dir(dir) {
				if !slices.Contains(directories[of[0]], dir) {
					directories[of[0]] = append(directories[of[0]], dir)
				}
			}
		}
	}
	return directories
}

// licenceFile is a file that says who permits the use of code, or whom to name.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// notice is what NOTICE has to say: the licences of all that weir links on some system.
func notice(t *testing.T) string {
	t.Helper()
	modules := map[string][]string{}
	for _, system := range []string{"linux", "darwin", "windows", "freebsd"} {
		for module, directories := range linked(t, system) {
			modules[module] = append(modules[module], directories...)
		}
	}
	root, err := exec.CommandContext(await.Build(t), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules["Go"] = []string{strings.TrimSpace(string(root))}
	var b strings.Builder
	b.WriteString("The binaries of weir contain the following software of others, under the licences that follow. `make notice` writes this file.\n")
	for _, module := range slices.SortedFunc(maps.Keys(modules), func(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) }) {
		directories := modules[module]
		slices.Sort(directories)
		found := 0
		for _, dir := range slices.Compact(directories) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				if entry.IsDir() || !licenceFile.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
					continue
				}
				inside, err := filepath.Rel(directories[0], filepath.Join(dir, entry.Name()))
				if err != nil {
					t.Fatal(err)
				}
				text := strings.ReplaceAll(weirtest.MustRead(t, filepath.Join(dir, entry.Name())), "\r\n", "\n")
				fmt.Fprintf(&b, "\n%s\n%s (%s)\n\n%s\n", strings.Repeat("=", 80), module, filepath.ToSlash(inside), strings.TrimSpace(text))
				found++
			}
		}
		if found == 0 {
			t.Errorf("%s has no licence that could be found", module)
		}
	}
	return b.String()
}

// TestNotice: NOTICE names everything that is linked in, with its licence as it is in the version that is linked.
func TestNotice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(weirtest.Repository, "NOTICE")
	want := notice(t)
	if os.Getenv("WEIR_TEST_WRITE_NOTICE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := weirtest.MustRead(t, path); got != want {
		t.Errorf("NOTICE is not what is linked in: make notice")
	}
}
