package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/internal/cli/help"
	"weir/cmd/weir/weirtest"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manualIn writes what a package has beside the binary: a page of the manual for each command, and what shells complete by.
func manualIn(dir string) error {
	man, completions := filepath.Join(dir, "man"), filepath.Join(dir, "completions")
	for _, d := range []string{man, completions} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	root := commands.Root()
	undated(root)
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "WEIR", Section: "1", Source: "weir", Manual: "weir"}, man); err != nil {
		return err
	}
	if err := withoutTabs(man); err != nil {
		return err
	}
	for _, topic := range help.Topics() {
		if err := os.WriteFile(filepath.Join(man, "weir-"+topic.Name+".7"), []byte(topicPage(topic)), 0o600); err != nil {
			return err
		}
	}
	for shell, write := range map[string]func(string) error{
		"bash": func(path string) error { return root.GenBashCompletionFileV2(path, true) },
		"zsh":  root.GenZshCompletionFile,
		"fish": func(path string) error { return root.GenFishCompletionFile(path, true) },
	} {
		if err := write(filepath.Join(completions, "weir."+shell)); err != nil {
			return err
		}
	}
	return nil
}

// option is a flag and its description as cobra writes them into a page: on a line that begins with a tab, which roff fills at will.
var option = regexp.MustCompile(`(?m)^(?:\.PP\n)?(\\fB-.*)\n\t(.*)$`)

// withoutTabs makes tagged paragraphs of the flags in the pages of a directory.
func withoutTabs(dir string) error {
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, option.ReplaceAll(text, []byte(".TP\n$1\n$2")), 0o600); err != nil {
			return err
		}
	}
	return err
}

// topicPage returns a manual page of section 7 that shows a topic as a terminal does. Its tables, lists and paragraphs
// are laid out already.
func topicPage(topic help.Topic) string {
	_, text, _ := strings.Cut(help.Render(topic.Text(), help.Style{Width: 78}), "\n")
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "\n.", "\n\\&.").Replace(strings.ReplaceAll(text, "\t", "    "))
	return fmt.Sprintf(".TH \"WEIR-%s\" \"7\" \"\" \"weir\" \"weir\"\n.SH NAME\nweir\\-%s \\- %s\n.SH DESCRIPTION\n.nf\n%s.fi\n.SH SEE ALSO\n.BR weir (1)\n",
		strings.ToUpper(topic.Name), topic.Name, topic.Short, text)
}

// undated leaves the day on which the manual was made out of it: the same source makes the same package.
func undated(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, child := range cmd.Commands() {
		undated(child)
	}
}

// TestManual: every command that a user sees has a page, and each shell its completion. `make manual` writes them for a release.
func TestManual(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("WEIR_TEST_MANUAL")
	if dir == "" {
		dir = t.TempDir()
	}
	if err := manualIn(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands.Root().Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		page := weirtest.MustRead(t, filepath.Join(dir, "man", "weir-"+c.Name()+".1"))
		if !strings.Contains(page, c.Short) {
			t.Errorf("the page of %s does not say what it is for", c.Name())
		}
	}
	for _, topic := range help.Topics() {
		if page := weirtest.MustRead(t, filepath.Join(dir, "man", "weir-"+topic.Name+".7")); !strings.Contains(page, topic.Short) || strings.Count(page, "\n") < 20 {
			t.Errorf("the page of the topic %s is\n%s", topic.Name, page)
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man", "*.?"))
	if err != nil || len(pages) < 60 {
		t.Errorf("there are %d pages: %v", len(pages), err)
	}
	for _, path := range pages {
		filled := regexp.MustCompile(`(?s)\n\.(EX|nf)\n.*?\n\.(EE|fi)\n`).ReplaceAllString(weirtest.MustRead(t, path), "\n")
		if strings.Contains(filled, "\t") {
			t.Errorf("%s has a tab in text that is filled", path)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if text := weirtest.MustRead(t, filepath.Join(dir, "completions", "weir."+shell)); !strings.Contains(text, "__complete") {
			t.Errorf("%s is not asked to complete", shell)
		}
	}
}

// TestRelease compares goreleaser's configuration with the repository: packed files exist, the systems are those of
// make cross and of the topics, and a build reports the same version as make build. It does not run goreleaser, which
// is not available everywhere.
func TestRelease(t *testing.T) {
	t.Parallel()
	root := weirtest.Repository
	release := documents(t, ".goreleaser.yaml", weirtest.MustRead(t, filepath.Join(root, ".goreleaser.yaml")))[0]
	for field := range release {
		if !slices.Contains([]string{"version", "project_name", "before", "builds", "archives", "sboms", "checksum", "nfpms", "snapshot", "changelog"}, field) {
			t.Errorf("goreleaser's field %s is not one that this test knows", field)
		}
	}
	packs := func(what, src string) {
		t.Helper()
		if strings.HasPrefix(src, "bin/manual/") {
			return // TestManual has what make manual writes
		}
		if found, err := filepath.Glob(filepath.Join(root, strings.ReplaceAll(src, "**/", ""))); err != nil || len(found) == 0 {
			t.Errorf("%s: there is no %s", what, src)
		}
	}
	for _, f := range at(release["archives"].([]any)[0], "files").([]any) {
		src, ok := f.(string)
		if !ok {
			src = at(f, "src").(string)
		}
		packs("the archive", src)
	}
	unit := weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "systemd", "weir.service"))
	for _, p := range release["nfpms"].([]any) {
		for _, c := range at(p, "contents").([]any) {
			packs("the package", at(c, "src").(string))
		}
		if bin := at(p, "bindir").(string); bin != "/usr/bin" || !strings.Contains(unit, "\nExecStart="+bin+"/weir ") {
			t.Errorf("the package puts weir into %s, where the unit does not look", bin)
		}
	}
	for _, made := range []string{"archive", "package"} {
		if !slices.ContainsFunc(release["sboms"].([]any), func(s any) bool { return at(s, "artifacts") == made }) {
			t.Errorf("no bill of materials stands beside a release's %s", made)
		}
	}
	makefile := weirtest.MustRead(t, filepath.Join(root, "Makefile"))
	build := release["builds"].([]any)[0].(object)
	said := fmt.Sprint(build["ldflags"])
	image := weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "Dockerfile"))
	for _, name := range regexp.MustCompile(`-X \$\(SAYS\)\.(\w+)=`).FindAllStringSubmatch(makefile, -1) {
		if !strings.Contains(said, "-X weir/cmd/weir/internal/cli."+name[1]+"=") {
			t.Errorf("a release does not say its %s", name[1])
		}
		if argument := map[string]string{"release": "VERSION", "commit": "COMMIT"}[name[1]]; !strings.Contains(image, "-X weir/cmd/weir/internal/cli."+name[1]+"=$"+argument) ||
			!strings.Contains(makefile, "--build-arg "+argument+"=$("+argument+")") {
			t.Errorf("an image is not told its %s", name[1])
		}
	}
	for _, platform := range regexp.MustCompile(`(\w+)/(\w+)`).FindAllStringSubmatch(regexp.MustCompile(`(?m)^PLATFORMS \?= .*$`).FindString(makefile), -1) {
		if !slices.Contains(build["goos"].([]any), any(platform[1])) || !slices.Contains(build["goarch"].([]any), any(platform[2])) {
			t.Errorf("make cross builds for %s, a release does not", platform[0])
		}
	}
	for _, hook := range at(release, "before", "hooks").([]any) {
		target, is := strings.CutPrefix(hook.(string), "make ")
		if !is || !strings.Contains(makefile, "\n"+target+":") {
			t.Errorf("a release begins with %q, which make does not have", hook)
		}
	}
}
