package docs

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/weirtest"
)

// recipe is one configuration of the topic recipes, with the heading above it.
type recipe struct{ title, yaml string }

// recipes reads the topic: each section has one configuration.
func recipes(t *testing.T) []recipe {
	t.Helper()
	var all []recipe
	sections := strings.Split(weirtest.TopicText(t, "recipes"), "\n## ")
	for _, section := range sections[1:] {
		title, _, _ := strings.Cut(section, "\n")
		_, rest, _ := strings.Cut(section, "```yaml\n")
		yaml, _, ok := strings.Cut(rest, "```")
		if !ok || strings.Contains(rest[len(yaml)+3:], "```") {
			t.Fatalf("recipe %q does not have exactly one configuration", title)
		}
		all = append(all, recipe{title, yaml})
	}
	return all
}

var (
	secretOf = regexp.MustCompile(`\$\{env:([A-Z_]+)\}`)
	hostOf   = regexp.MustCompile(`(url: )https://([a-z.]+\.example\.com|api\.(openai|anthropic)\.com)`)
)

// TestRecipes checks that each recipe is valid without a warning, and that a weir that runs it brings a job to its
// result. An API of a vendor answers as that vendor does, and weir must count what its answers report.
func TestRecipes(t *testing.T) {
	all := recipes(t)
	if len(all) < 6 {
		t.Fatalf("%d recipes, want at least 6", len(all))
	}
	for _, r := range all {
		for _, m := range secretOf.FindAllStringSubmatch(r.yaml, -1) {
			t.Setenv(m[1], "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
		}
	}
	for _, r := range all {
		t.Run(r.title, func(t *testing.T) {
			t.Parallel()
			c, err := config.Parse([]byte(r.yaml), config.Options{Name: "weir.yaml"})
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Warnings) > 0 {
				t.Errorf("config check warns: %v", c.Warnings)
			}
			// Only the API is the fake one: notifications keep their address, which does not resolve.
			own, others, _ := strings.Cut(strings.ReplaceAll(r.yaml, "%", "%%"), "\nnotifications:")
			yaml := hostOf.ReplaceAllString(own, "${1}%[1]s")
			if others != "" {
				yaml += "\nnotifications:" + others
			}
			vendor := fakeapi.Vendor(c.APIs[0].Vendor.Name)
			o := fakeapi.Options{Vendor: vendor}
			if c.APIs[0].Pack != nil { // each job of a call gets itself as its answer
				o.Script = func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
					return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: string(q.Body())}
				}
			}
			rig := weirtest.ReadyRig(t, o, yaml)
			rig.Start()
			t.Cleanup(rig.Stop)
			api := c.APIs[0].Name
			rig.Must("submit", api, "customer-17", "--data", `{"n":1}`, "--id", "one", "--wait")
			if calls := rig.AwaitCalls(1); len(calls) != 1 || calls[0].Status != http.StatusOK {
				t.Errorf("the API saw %+v, want one call", calls)
			}
			if vendor == "" {
				return
			}
			rig.Eventually("the record of the call", func() bool { return len(rig.Ledger(api, "customer-17")) == 1 })
			if used := rig.Ledger(api, "customer-17")[0].Usage; used["input_tokens"] == 0 || used["output_tokens"] == 0 {
				t.Errorf("the ledger has the usage %v", used)
			}
		})
	}
}
