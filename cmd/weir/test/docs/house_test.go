package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/weir/weirtest"
)

// rooms are the packages of weir from the lowest to the highest, with what each may import of the others. What stands in no
// line may not be imported: a new room, or a new way between two, is decided here.
var rooms = []struct{ room, imports string }{
	{"ingest/await", ""},
	{"ingest/client", ""},
	{"ingest", "ingest/client"},
	{"bucket/fault", ""},
	{"bucket/internal/keyhash", ""},
	{"bucket/natstest", ""},
	{"bucket/certtest", ""},
	{"bucket", "ingest bucket/internal/keyhash"},
	{"bucket/redisstore", "bucket bucket/fault"},
	{"bucket/storetest", "ingest bucket"},
	{"bucket/stream", "ingest"},
	{"bucket/lease", "bucket/fault bucket/stream"},
	{"bucket/queue", "ingest bucket bucket/fault bucket/internal/keyhash bucket/stream"},
	{"deadletter", "ingest bucket bucket/fault bucket/stream bucket/lease bucket/queue"},
	{"dispatcher/internal/seeds", ""},
	{"dispatcher/schedule/backlog", "bucket"},
	{"dispatcher/schedule/turns", "bucket"},
	{"dispatcher/schedule/limits", "bucket dispatcher/schedule/turns"},
	{"dispatcher/schedule", "bucket dispatcher/schedule/backlog dispatcher/schedule/turns dispatcher/schedule/limits"},
	{"dispatcher/schedule/replicas", ""}, // only tests
	{"dispatcher/sites", "bucket"},
	{"dispatcher/reuse", "ingest bucket"},
	{"dispatcher/ledger", "ingest bucket bucket/stream bucket/queue deadletter"},
	{"dispatcher/retell", "ingest bucket bucket/stream deadletter dispatcher/ledger"},
	{"dispatcher/httpcall", "ingest bucket bucket/queue deadletter dispatcher/schedule dispatcher/ledger dispatcher/reuse"},
	{"dispatcher/ownership", "bucket bucket/stream bucket/lease bucket/queue"},
	{"dispatcher/recorder", "bucket/fault"},
	{"dispatcher/recovery", "dispatcher/recorder"},
	{"dispatcher/trace", "ingest"},
	{"dispatcher/lane", "ingest bucket bucket/fault bucket/stream bucket/queue deadletter dispatcher/httpcall dispatcher/ledger dispatcher/schedule dispatcher/ownership dispatcher/recorder dispatcher/reuse dispatcher/trace"},
	{"dispatcher/desk", "ingest bucket bucket/queue bucket/stream deadletter dispatcher/schedule dispatcher/schedule/limits dispatcher/lane"},
	{"dispatcher/inquiry", "ingest bucket bucket/fault bucket/lease bucket/stream deadletter dispatcher/httpcall dispatcher/ledger dispatcher/schedule dispatcher/lane"},
	{"dispatcher/settle", "ingest bucket bucket/fault bucket/stream bucket/queue deadletter dispatcher/httpcall dispatcher/ledger dispatcher/reuse dispatcher/schedule dispatcher/trace dispatcher/lane"},
	{"dispatcher/fleet", "ingest bucket bucket/stream dispatcher/schedule dispatcher/lane dispatcher/settle"},
	{"dispatcher/polling", "bucket bucket/queue deadletter dispatcher/httpcall dispatcher/schedule dispatcher/lane dispatcher/desk dispatcher/settle"},
	{"dispatcher/takeover", "ingest bucket bucket/fault bucket/stream bucket/queue deadletter dispatcher/httpcall dispatcher/ledger dispatcher/schedule dispatcher/recorder dispatcher/recovery dispatcher/lane dispatcher/settle"},
	{"dispatcher", "ingest bucket bucket/fault bucket/stream bucket/lease bucket/queue deadletter dispatcher/schedule dispatcher/schedule/limits dispatcher/ledger dispatcher/httpcall dispatcher/ownership dispatcher/recorder dispatcher/reuse dispatcher/trace dispatcher/lane dispatcher/desk dispatcher/fleet dispatcher/inquiry dispatcher/settle dispatcher/polling dispatcher/takeover"},
	{"cmd/internal/fakeapi", ""},
	{"cmd/internal/machine", ""},
	{"cmd/internal/child", "cmd/internal/machine"},
	{"cmd/internal/serving", "cmd/internal/child"},
	{"cmd/internal/contest", "cmd/internal/machine cmd/internal/child"},
	{"cmd/weir/internal/cli/terminal", ""},
	{"cmd/weir/internal/cli/help", "cmd/weir/internal/cli/terminal"},
	{"cmd/weir/internal/cli", "cmd/weir/internal/cli/terminal"},
	{"cmd/weir/internal/serve/clock", "bucket"},
	{"cmd/weir/internal/config/problem", ""},
	{"cmd/weir/internal/config/grammar", "bucket cmd/weir/internal/config/problem"},
	{"cmd/weir/internal/config/secret", "cmd/weir/internal/config/grammar cmd/weir/internal/config/problem"},
	{"cmd/weir/internal/config/field", "bucket cmd/weir/internal/config/grammar cmd/weir/internal/config/problem cmd/weir/internal/config/secret"},
	{"cmd/weir/internal/config/vendors", "cmd/weir/internal/config/field cmd/weir/internal/config/grammar cmd/weir/internal/config/problem"},
	{"cmd/weir/internal/config", "bucket bucket/queue deadletter ingest cmd/weir/internal/config/field cmd/weir/internal/config/grammar cmd/weir/internal/config/problem cmd/weir/internal/config/secret cmd/weir/internal/config/vendors"},
	{"cmd/weir/internal/config/environment", "cmd/weir/internal/config cmd/weir/internal/config/field cmd/weir/internal/config/grammar cmd/weir/internal/config/problem cmd/weir/internal/config/secret"},
	{"cmd/weir/internal/cli/schema", "cmd/weir/internal/config cmd/weir/internal/config/field cmd/weir/internal/cli/help"},
	{"cmd/weir/internal/nats/connect", "ingest bucket/lease bucket/stream cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/config/secret"},
	{"cmd/weir/internal/nats/jsproxy", "cmd/weir/internal/nats/connect"},
	{"cmd/weir/internal/serve/embedded", "cmd/weir/internal/nats/connect cmd/weir/internal/nats/jsproxy"},
	{"cmd/weir/internal/httpd/console", "cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/config/grammar"},
	{"cmd/weir/internal/cli/demo", "bucket cmd/internal/fakeapi cmd/internal/machine cmd/internal/serving cmd/weir/internal/cli/terminal"},
	{"cmd/weir/internal/cli/bench", "cmd/internal/machine cmd/internal/serving cmd/internal/contest cmd/weir/internal/cli"},
	{"cmd/weir/internal/serve/limitstate", "bucket bucket/fault bucket/redisstore bucket/stream deadletter dispatcher dispatcher/schedule dispatcher/schedule/limits dispatcher/httpcall dispatcher/ledger dispatcher/recorder cmd/weir/internal/cli cmd/weir/internal/serve/clock cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/config/grammar cmd/weir/internal/config/secret"},
	{"cmd/weir/internal/ops/flowsamples", "dispatcher/desk dispatcher/schedule dispatcher"},
	{"cmd/weir/internal/ops/spend", "bucket dispatcher/ledger cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/grammar cmd/weir/internal/nats/connect cmd/weir/internal/serve/limitstate"},
	{"cmd/weir/internal/ops/jobindex", "bucket/stream deadletter dispatcher/ledger dispatcher/httpcall cmd/weir/internal/config cmd/weir/internal/ops/spend"},
	{"cmd/weir/internal/serve/admin", "ingest bucket/lease bucket/queue bucket/stream deadletter dispatcher/desk dispatcher/inquiry dispatcher dispatcher/schedule cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/config/grammar cmd/weir/internal/nats/connect cmd/weir/internal/serve/limitstate cmd/weir/internal/ops/flowsamples bucket cmd/weir/internal/ops/jobindex dispatcher/ledger cmd/weir/internal/ops/spend"},
	{"cmd/weir/internal/ops/whatif", "ingest bucket dispatcher/schedule cmd/weir/internal/config cmd/weir/internal/config/grammar"},
	{"cmd/weir/internal/ops/outlook", "bucket bucket/stream deadletter dispatcher/ledger cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/grammar cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/serve/limitstate cmd/weir/internal/ops/whatif"},
	{"cmd/weir/internal/ops/verify", "bucket deadletter dispatcher/httpcall dispatcher/ledger cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/grammar cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/serve/limitstate cmd/weir/internal/cli/terminal"},
	{"cmd/weir/internal/ops/status", "ingest deadletter dispatcher/desk dispatcher dispatcher/schedule cmd/weir/internal/cli cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/serve/limitstate cmd/weir/internal/ops/spend dispatcher/ledger bucket/stream"},
	{"cmd/weir/internal/ops/shares", "bucket dispatcher/schedule dispatcher/sites cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin"},
	{"cmd/weir/internal/ops/doctor", "bucket bucket/redisstore cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/config/problem cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/serve/limitstate cmd/weir/internal/ops/status bucket/stream"},
	{"cmd/weir/internal/ops/jobstory", "ingest bucket bucket/stream deadletter dispatcher/desk dispatcher/httpcall dispatcher/ledger dispatcher/schedule cmd/weir/internal/cli cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin dispatcher cmd/weir/internal/ops/jobindex"},
	{"cmd/weir/internal/ops/deadview", "ingest deadletter dispatcher/ledger cmd/weir/internal/config/grammar cmd/weir/internal/ops/jobstory bucket bucket/lease cmd/weir/internal/cli cmd/weir/internal/nats/connect"},
	{"cmd/weir/internal/ops/joblist", "ingest dispatcher/desk dispatcher/ledger dispatcher/schedule cmd/weir/internal/cli cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/ops/deadview cmd/weir/internal/ops/jobindex"},
	{"cmd/weir/internal/serve/proposal", "cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/problem cmd/weir/internal/config/secret cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/serve/limitstate"},
	{"cmd/weir/internal/httpd/httpintake", "ingest cmd/weir/internal/httpd/console cmd/weir/internal/ops/jobstory"},
	{"cmd/weir/internal/httpd/httpapi", "ingest bucket/stream deadletter dispatcher/desk dispatcher/inquiry dispatcher/ledger dispatcher/schedule cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/config/grammar cmd/weir/internal/config/problem cmd/weir/internal/config/secret cmd/weir/internal/nats/connect cmd/weir/internal/httpd/console cmd/weir/internal/serve/admin cmd/weir/internal/ops/doctor cmd/weir/internal/httpd/httpintake cmd/weir/internal/ops/deadview cmd/weir/internal/serve/limitstate cmd/weir/internal/ops/spend cmd/weir/internal/ops/status cmd/weir/internal/ops/jobstory cmd/weir/internal/ops/flowsamples bucket cmd/weir/internal/serve/proposal cmd/weir/internal/ops/whatif cmd/weir/internal/ops/outlook cmd/weir/internal/ops/verify dispatcher cmd/weir/internal/ops/joblist"},
	{"cmd/weir/internal/httpd/webhook", "ingest bucket/lease bucket/stream deadletter dispatcher/ledger cmd/weir/internal/config cmd/weir/internal/config/grammar cmd/weir/internal/serve/admin cmd/weir/internal/ops/deadview cmd/weir/internal/ops/jobstory"},
	{"cmd/weir/internal/cli/top", "dispatcher/schedule cmd/weir/internal/cli cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/ops/spend cmd/weir/internal/ops/status cmd/weir/internal/cli/terminal"},
	{"cmd/weir/internal/serve/restoreguard", "bucket/stream"},
	{"cmd/weir/internal/ops/migrate", "bucket/lease bucket/stream dispatcher/ownership cmd/weir/internal/cli cmd/weir/internal/config/environment cmd/weir/internal/config/grammar cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/serve/embedded cmd/weir/internal/serve/restoreguard"},
	{"cmd/weir/internal/ops/bulksubmit", "ingest cmd/weir/internal/config cmd/weir/internal/config/grammar"},
	{"cmd/weir/internal/nats/foreign", "ingest deadletter cmd/weir/internal/cli cmd/weir/internal/nats/connect"},
	{"cmd/weir/internal/serve/otlp", "dispatcher/trace"},
	{"cmd/weir/internal/serve/streamwatch", "bucket/natstest deadletter dispatcher cmd/weir/internal/cli bucket/stream cmd/weir/internal/serve/admin"},
	{"cmd/weir/internal/serve/worker", "cmd/weir/internal/serve/streamwatch ingest bucket bucket/lease bucket/queue bucket/stream deadletter dispatcher/desk dispatcher/takeover dispatcher dispatcher/schedule dispatcher/httpcall dispatcher/ledger dispatcher/ownership dispatcher/recorder dispatcher/retell dispatcher/reuse cmd/weir/internal/cli cmd/weir/internal/serve/clock cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/config/problem cmd/weir/internal/config/secret cmd/weir/internal/nats/connect cmd/weir/internal/httpd/console cmd/weir/internal/serve/admin cmd/weir/internal/serve/embedded cmd/weir/internal/nats/foreign cmd/weir/internal/nats/jsproxy cmd/weir/internal/serve/limitstate cmd/weir/internal/ops/migrate cmd/weir/internal/serve/restoreguard bucket/redisstore cmd/weir/internal/httpd/httpapi cmd/weir/internal/ops/flowsamples cmd/weir/internal/httpd/httpintake cmd/weir/internal/ops/jobstory cmd/weir/internal/serve/otlp cmd/weir/internal/httpd/webhook cmd/weir/internal/ops/jobindex"},
	{"cmd/weir/internal/cli/commands/letters", "bucket bucket/stream cmd/weir/internal/cli cmd/weir/internal/config/grammar cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/ops/deadview cmd/weir/internal/cli/terminal cmd/weir/internal/serve/worker deadletter dispatcher/inquiry ingest"},
	{"cmd/weir/internal/cli/commands/configuration", "cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/environment cmd/weir/internal/config/problem cmd/weir/internal/nats/connect cmd/weir/internal/serve/admin cmd/weir/internal/serve/proposal cmd/weir/internal/cli/schema"},
	{"cmd/weir/internal/cli/commands/plans", "bucket cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/grammar cmd/weir/internal/nats/connect cmd/weir/internal/ops/deadview cmd/weir/internal/ops/outlook cmd/weir/internal/ops/whatif cmd/weir/internal/serve/admin"},
	{"cmd/weir/internal/cli/commands/submission", "deadletter dispatcher/ledger ingest cmd/weir/internal/cli cmd/weir/internal/config cmd/weir/internal/config/grammar cmd/weir/internal/nats/connect cmd/weir/internal/ops/bulksubmit cmd/weir/internal/ops/jobstory cmd/weir/internal/serve/admin"},
	{"cmd/weir/internal/cli/commands", "*"},
	{"cmd/weir", "cmd/weir/internal/cli/commands"},
	{"cmd/weir/weirtest/producer", "ingest ingest/client"},
	{"cmd/weir/weirtest/program", "deadletter dispatcher/inquiry dispatcher/schedule cmd/weir/internal/config/environment cmd/weir/internal/serve/admin cmd/weir/internal/ops/deadview cmd/weir/internal/ops/verify"},
	{"cmd/weir/weirtest/referee", "bucket cmd/internal/fakeapi cmd/internal/machine"},
	{"cmd/weir/weirtest/servers", "bucket/redisstore cmd/internal/machine cmd/weir/internal/nats/connect cmd/weir/internal/serve/embedded"},
	{"cmd/weir/weirtest/store", "ingest bucket bucket/queue deadletter dispatcher/httpcall dispatcher/ledger cmd/internal/fakeapi cmd/weir/internal/config/grammar cmd/weir/internal/serve/admin cmd/weir/internal/serve/clock cmd/weir/internal/serve/limitstate cmd/weir/internal/ops/migrate"},
	{"cmd/weir/weirtest/web", ""},
	{"cmd/weir/weirtest", "*"},
	{"cmd/weir/test/cli", "*"},
	{"cmd/weir/test/console", "*"},
	{"cmd/weir/test/docs", "*"},
	{"cmd/weir/test/intake", "*"},
	{"cmd/weir/test/jobs", "*"},
	{"cmd/weir/test/letters", "*"},
	{"cmd/weir/test/limits", "*"},
	{"cmd/weir/test/recovery", "*"},
	{"cmd/weir/test/replicas", "*"},
	{"cmd/weir/test/soak", "*"},
	{"cmd/weir-torture/internal/plan", "bucket bucket/fault bucket/lease bucket/queue cmd/internal/machine"},
	{"cmd/weir-torture/internal/judge", "bucket bucket/fault deadletter dispatcher/ledger cmd/internal/fakeapi cmd/weir-torture/internal/plan"},
	{"cmd/weir-torture/internal/network", "bucket/stream cmd/weir-torture/internal/plan"},
	{"cmd/weir-torture/internal/disk", ""},
	{"cmd/weir-torture/internal/torture", "ingest bucket bucket/fault bucket/stream bucket/lease bucket/queue deadletter dispatcher/ledger dispatcher/recorder cmd/internal/fakeapi cmd/internal/machine cmd/internal/child cmd/weir-torture/internal/plan cmd/weir-torture/internal/judge cmd/weir-torture/internal/network cmd/weir-torture/internal/disk"},
	{"cmd/weir-torture", "bucket/fault cmd/internal/machine cmd/weir-torture/internal/plan cmd/weir-torture/internal/judge cmd/weir-torture/internal/torture"},
	{"cmd/weir-peers", "cmd/internal/machine cmd/internal/child cmd/internal/serving cmd/internal/contest"},
	{"cmd/weir-peers/sides", "cmd/internal/machine cmd/internal/serving cmd/internal/contest"},
	{"deploy/bench", ""}, // a module of its own: only its tests import weir
}

// forTests are what only tests import.
var forTests = []string{
	"ingest/await", "bucket/certtest", "bucket/natstest", "bucket/storetest", "dispatcher/internal/seeds", "cmd/weir/weirtest",
	"cmd/weir/weirtest/producer", "cmd/weir/weirtest/program", "cmd/weir/weirtest/referee", "cmd/weir/weirtest/servers",
	"cmd/weir/weirtest/store", "cmd/weir/weirtest/web",
}

// TestImportsPointDown holds the house: each package imports only what its line in rooms names, all of which stands above its
// line. Tests may import any room below their own, too.
func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	place, may := map[string]int{}, map[string][]string{}
	for i, r := range rooms {
		place[r.room], may[r.room] = i, strings.Fields(r.imports)
		for _, imported := range may[r.room] {
			if below, ok := place[imported]; imported != "*" && (!ok || below >= i) {
				t.Errorf("%s may import %s, which does not stand below it", r.room, imported)
			}
		}
	}
	eachImport(t, func(file, path string) {
		to, ok := strings.CutPrefix(path, "weir/")
		if !ok {
			return
		}
		from, test := filepath.ToSlash(filepath.Dir(file)), strings.HasSuffix(file, "_test.go")
		above, known := place[from]
		below, there := place[to]
		switch {
		case !known || !there:
			t.Errorf("%s imports %s: give both a line in rooms", file, path)
		case from == to:
		case slices.Contains(forTests, to):
			if !test && !slices.Contains(forTests, from) {
				t.Errorf("%s imports %s, which is for tests", file, path)
			}
		case test && below < above:
		case !slices.Contains(may[from], to) && !slices.Contains(may[from], "*"):
			t.Errorf("%s imports %s: %s may import %v", file, path, from, may[from])
		}
	})
}

// TestHeavyDependenciesHaveOneHome: each of these is a decision that one package hides from the others.
func TestHeavyDependenciesHaveOneHome(t *testing.T) {
	t.Parallel()
	homes := map[string][]string{
		"github.com/nats-io/nats-server/": {"cmd/weir/internal/serve/embedded/", "bucket/natstest/", "cmd/weir/weirtest/"},
		"github.com/redis/go-redis/":      {"bucket/redisstore/"},
		"go.yaml.in/yaml/":                {"cmd/weir/internal/config/"},
		"gopkg.in/yaml":                   {"cmd/weir/internal/config/"},
		"github.com/kelseyhightower/":     {"cmd/weir/internal/config/"},
		"github.com/spf13/cobra":          {"cmd/weir/", "cmd/weir-torture/"}, // and of the rooms of cmd/weir only cli and commands: see below
		"github.com/Shopify/toxiproxy/":   {"cmd/weir-torture/internal/network/"},
		"github.com/rs/zerolog":           {"cmd/weir-torture/internal/network/"},
		"embed":                           {"cmd/weir/internal/httpd/httpapi/", "cmd/weir/internal/httpd/console/", "cmd/weir/internal/cli/help/", "cmd/weir-peers/"},
		"github.com/prometheus/client_golang/prometheus/promhttp": {"cmd/weir/internal/httpd/console/"},
		"go.opentelemetry.io/otel/sdk/":                           {"cmd/weir/internal/serve/otlp/"},
		"go.opentelemetry.io/otel/exporters/":                     {"cmd/weir/internal/serve/otlp/"},
		"go.opentelemetry.io/proto/":                              {"cmd/weir/internal/serve/otlp/"},
		"go.opentelemetry.io/otel/":                               {"cmd/weir/internal/serve/otlp/", "dispatcher/trace/"},
	}
	seen := map[string]bool{}
	eachImport(t, func(file, path string) {
		for dependency, allowed := range homes {
			if path != dependency && !strings.HasPrefix(path, dependency) || strings.HasSuffix(file, "_test.go") {
				continue
			}
			seen[dependency] = true
			if strings.HasSuffix(dependency, "/cobra") && strings.HasPrefix(file, "cmd/weir/internal/") &&
				filepath.Dir(file) != "cmd/weir/internal/cli" && !strings.HasPrefix(file, "cmd/weir/internal/cli/commands/") {
				t.Errorf("%s imports %s: commands and their flags are in cmd/weir/internal/cli/commands", file, path)
			}
			if !slices.ContainsFunc(allowed, func(home string) bool { return strings.HasPrefix(file, home) }) {
				t.Errorf("%s imports %s, whose home is %s", file, path, allowed)
			}
		}
	})
	for _, used := range []string{"github.com/nats-io/nats-server/", "github.com/redis/go-redis/", "go.yaml.in/yaml/"} {
		if !seen[used] {
			t.Errorf("no package imports %s any more: mend this test", used)
		}
	}
}

// TestConsoleDrivesTheBrowser: of what drives Chromium only the tests know, and of them those of the console.
func TestConsoleDrivesTheBrowser(t *testing.T) {
	t.Parallel()
	homes := []string{"cmd/weir/test/console/"}
	eachImport(t, func(file, path string) {
		if strings.HasPrefix(path, "github.com/chromedp/") && !slices.ContainsFunc(homes, func(home string) bool { return strings.HasPrefix(file, home) }) {
			t.Errorf("%s imports %s, whose home is %v", file, path, homes)
		}
	})
}

// TestTortureIsNotShipped: what spoils networks and orders deaths is in weir-torture, and in nothing that users run.
func TestTortureIsNotShipped(t *testing.T) {
	t.Parallel()
	dependencies := func(program string) map[string]bool {
		t.Helper()
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
		list.Dir = filepath.Join(weirtest.Repository, program)
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", program, err)
		}
		all := map[string]bool{}
		for path := range strings.FieldsSeq(string(out)) {
			all[path] = true
		}
		return all
	}
	weir, torture := dependencies("cmd/weir"), dependencies("cmd/weir-torture")
	for _, path := range []string{
		"github.com/Shopify/toxiproxy/v2", "github.com/rs/zerolog", "github.com/gorilla/mux", "weir/cmd/weir-torture/internal/torture",
	} {
		if weir[path] {
			t.Errorf("weir links %s", path)
		}
		if !torture[path] {
			t.Errorf("weir-torture does not link %s any more: mend this test", path)
		}
	}
}

// TestOthersAreOnlyMeasured: what weir is compared with stands beside it in a module of its own, and in nothing that is shipped but weir
// bench. golang.org/x/time is linked in with nats-server anyway.
func TestOthersAreOnlyMeasured(t *testing.T) {
	t.Parallel()
	homes := map[string][]string{
		"github.com/go-redis/redis_rate/": {"deploy/bench/beside_test.go"},
		"github.com/throttled/throttled/": {"deploy/bench/beside_test.go"},
		"github.com/riverqueue/river":     {"cmd/weir-peers/river.go"},
		"github.com/hibiken/asynq":        {"cmd/weir-peers/asynq.go"},
		"github.com/jackc/pgx/":           {"cmd/weir-peers/river.go", "cmd/weir-peers/postgres.go"},
		"golang.org/x/time/rate": {
			"deploy/bench/beside_test.go", "cmd/weir-peers/asynq.go", "bucket/bench_test.go", "cmd/weir/internal/cli/bench/pace.go",
			"cmd/weir/internal/httpd/console/failures.go", // guesses at a token are no calls
		},
	}
	eachImport(t, func(file, path string) {
		for dependency, allowed := range homes {
			if strings.HasPrefix(path, dependency) && !slices.Contains(allowed, file) {
				t.Errorf("%s imports %s, whose home is %v", file, path, allowed)
			}
		}
	})
	required, err := os.ReadFile(filepath.Join(weirtest.Repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	apart := append(slices.Collect(maps.Keys(homes)), "github.com/Shopify/toxiproxy", "github.com/rs/zerolog", "github.com/chromedp/")
	for _, dependency := range apart {
		if !strings.HasPrefix(dependency, "golang.org/") && strings.Contains(string(required), dependency) {
			t.Errorf("go.mod requires %s", dependency)
		}
	}
}

// TestNoGRPC: what it takes to send traces over gRPC is larger than weir's own code.
func TestNoGRPC(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "weir/cmd/weir").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(path, "google.golang.org/grpc") || strings.HasSuffix(path, "otlptracehttp") {
			t.Errorf("weir links %s", path)
		}
	}
}

// Bounds of a type and a package. One that needs more does several things.
const (
	mostMethods = 40 // of a type
	mostFiles   = 35 // of a package, without its tests
)

// TestNothingIsLarge holds the bounds of types and packages.
func TestNothingIsLarge(t *testing.T) {
	t.Parallel()
	methods, files := map[string]int{}, map[string]int{}
	eachFile(t, parser.SkipObjectResolution, func(file string, parsed *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		room := path.Dir(file)
		files[room]++
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[room+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if n := methods[name]; n > mostMethods {
			t.Errorf("type %s has %d methods, more than %d: give what some of them share a type of its own", name, n, mostMethods)
		}
	}
	for _, room := range slices.Sorted(maps.Keys(files)) {
		if n := files[room]; n > mostFiles {
			t.Errorf("package %s has %d files without its tests, more than %d: divide it", room, n, mostFiles)
		}
	}
	for _, known := range []string{"dispatcher/schedule.KeyQueue", "dispatcher/schedule/turns.Turns", "bucket/queue.contents"} { // one of them is generic
		if methods[known] < 10 {
			t.Errorf("type %s has %d methods, which cannot be all: mend this test", known, methods[known])
		}
	}
}

// receiver returns the name of the type of a method's receiver.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.ParenExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

func eachImport(t *testing.T, do func(file, path string)) {
	t.Helper()
	eachFile(t, parser.ImportsOnly, func(file string, parsed *ast.File) {
		for _, i := range parsed.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			do(file, imported)
		}
	})
}

// eachFile parses each Go file of the repository. file is its path below the repository.
func eachFile(t *testing.T, mode parser.Mode, do func(file string, parsed *ast.File)) {
	t.Helper()
	root := weirtest.Repository
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root && d.Name() != ".." {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, mode)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		do(filepath.ToSlash(file), parsed)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
