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
	"weir/cmd/weir/weirtest/web"
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

// recipeRun is a weir that runs a recipe, with the api and the receiver of callbacks that the recipe asks for.
type recipeRun struct {
	*weirtest.Rig
	api   config.API
	calls int // that one job takes
	hook  *web.HookReceiver
}

// run starts a weir for a recipe. An API of a vendor answers as that vendor does. Only the API and the receiver of
// callbacks are on this machine: notifications keep their address, which does not resolve.
func (r recipe) run(t *testing.T, api *config.API) *recipeRun {
	t.Helper()
	n := &recipeRun{api: *api, calls: 1}
	o := fakeapi.Options{Vendor: fakeapi.Vendor(api.Vendor.Name)}
	yaml := secretOf.ReplaceAllLiteralString(strings.ReplaceAll(r.yaml, "%", "%%"), "${env:HOOK_SECRET}")
	switch {
	case api.Pack != nil: // each job of a call gets itself as its answer
		o.Script = func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: string(q.Body())}
		}
	case api.Operation != nil: // the call and two polls, a second apart
		o.Script, n.calls = (&fakeapi.Operations{Polls: 1}).Script, 3
		yaml = strings.Replace(yaml, "every: 10s", "every: 1s", 1)
	case api.Callback != nil:
		n.hook = web.NewHookReceiver(t)
		yaml = strings.Replace(yaml, "https://shop.example.com/weir", n.hook.URL+"/swordfish", 1)
	}
	own, others, _ := strings.Cut(yaml, "\nnotifications:")
	yaml = hostOf.ReplaceAllString(own, "${1}%[1]s")
	if others != "" {
		yaml += "\nnotifications:" + others
	}
	n.Rig = weirtest.ReadyRig(t, o, yaml)
	n.Start()
	t.Cleanup(n.Stop)
	return n
}

// check checks what the recipe is for, after the job one has ended.
func (n *recipeRun) check() {
	n.T.Helper()
	api := n.api.Name
	switch {
	case n.api.Vendor.Name != "":
		n.Eventually("the record of the call", func() bool { return len(n.Store().Ledger(api, "customer-17")) == 1 })
		if used := n.Store().Ledger(api, "customer-17")[0].Usage; used["input_tokens"] == 0 || used["output_tokens"] == 0 {
			n.T.Errorf("the ledger has the usage %v", used)
		}
	case n.api.Operation != nil:
		if got := n.Store().Results(api, "customer-17"); len(got) != 1 || string(got[0].Data) != `{"of":"videos"}` {
			n.T.Errorf("the results are %v", got)
		}
	case n.hook != nil:
		n.Eventually("the post of the end", func() bool { _, posts := n.hook.Took(`"job":"one"`); return posts == 1 })
	case n.api.Reuse != nil:
		n.CLI().Must("submit", api, "customer-18", "--data", `{"n":1}`, "--id", "two", "--wait")
		if got := n.Store().Results(api, "customer-18"); len(got) != 1 || got[0].Header.Get("Weir-Reused") != "one" {
			n.T.Errorf("the equal job got %v", got)
		}
	}
	if calls := n.AwaitCalls(n.calls); len(calls) != n.calls {
		n.T.Errorf("the API saw %+v, want %d", calls, n.calls)
	}
}

// TestRecipes checks that each recipe is valid without a warning, and that a weir that runs it brings a job to its
// result, for what the recipe says it costs.
func TestRecipes(t *testing.T) {
	t.Parallel()
	all := recipes(t)
	if len(all) < 13 {
		t.Fatalf("%d recipes, want at least 13", len(all))
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
			n := r.run(t, &c.APIs[0])
			submit := []string{"submit", n.api.Name, "customer-17", "--data", `{"n":1}`, "--id", "one", "--wait"}
			if strings.Contains(r.yaml, "priorities:") {
				submit = append(submit, "--priority", "high")
			}
			n.CLI().Must(submit...)
			if calls := n.AwaitCalls(1); calls[0].Status >= http.StatusMultipleChoices {
				t.Errorf("the API saw %+v", calls)
			}
			n.check()
		})
	}
}
