package docs

import (
	"os"
	"testing"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/weirtest"
)

// TestExampleConfiguration keeps the file that users start from valid.
func TestExampleConfiguration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(weirtest.Repository + "/deploy/weir.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(text, config.Options{Name: "weir.example.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("the example makes config check warn: %v", c.Warnings)
	}
}
