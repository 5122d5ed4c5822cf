package weirtest

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"weir/cmd/weir/internal/cli/help"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"
)

// Program returns the only code block of a language in a topic.
func Program(t *testing.T, topic, language string) string {
	t.Helper()
	blocks := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(TopicText(t, topic), -1)
	if len(blocks) != 1 {
		t.Fatalf("%s has %d programs in %s, want one", topic, len(blocks), language)
	}
	return blocks[0][1]
}

// ClientRun runs a program with the address of the rig's server in NATS_URL, and returns its output.
func (r *Rig) ClientRun(dir string, command ...string) (string, error) {
	r.T.Helper()
	cmd := exec.CommandContext(await.Context(r.T, command[0]), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(program.Environ(), "NATS_URL="+r.Worker.NATSURL())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// npmWithin bounds how long npm may take to install a client.
const npmWithin = 45 * time.Second

// NpmInstalled returns a directory with packages of npm. It skips the test if node or npm is missing, or if they cannot
// be installed.
func NpmInstalled(t *testing.T, packages string) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	dir := t.TempDir()
	WriteFile(t, filepath.Join(dir, "package.json"), `{"name":"client","private":true,"type":"module","dependencies":{`+packages+`}}`)
	ctx, cancel := context.WithTimeout(t.Context(), npmWithin)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install the client from here: %v\n%s", err, out)
	}
	return dir
}

// TopicText returns the Markdown of a topic, which `weir help` shows. A topic must name everything that users meet by
// name, and everything that a topic names must exist in the code. The tests of the topics extract both lists, from the
// code and from the text, and compare them.
func TopicText(t *testing.T, name string) string {
	t.Helper()
	topic, ok := help.Lookup(name)
	if !ok {
		t.Fatalf("there is no topic %s", name)
	}
	return topic.Text()
}
