package soak

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// TestDocsImportOfTheClient: another module builds with weir's client package as the documents say, from the module
// cache alone.
func TestDocsImportOfTheClient(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(weirtest.Repository)
	if err != nil {
		t.Fatal(err)
	}
	above := t.TempDir()
	if err := os.Symlink(root, filepath.Join(above, "weir")); err != nil {
		t.Skip("no link can be made here: ", err)
	}
	dir := filepath.Join(above, "billing")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	weirtest.WriteFile(t, filepath.Join(dir, "go.mod"), "module billing\n\ngo 1.26\n\n"+weirtest.Program(t, "clients", "mod"))
	weirtest.WriteFile(t, filepath.Join(dir, "go.sum"), weirtest.MustRead(t, filepath.Join(root, "go.sum")))
	weirtest.WriteFile(t, filepath.Join(dir, "main.go"), `package main

import (
	"context"

	"github.com/nats-io/nats.go"
	"weir/ingest/client"
)

func main() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		panic(err)
	}
	end, err := client.New(nc, client.Options{}).Do(context.Background(), client.Submission{API: "sms", Key: "k"})
	println(end.Outcome, err)
}
`)
	build := exec.CommandContext(await.Build(t), "go", "build", "-o", filepath.Join(dir, "billing"), ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
