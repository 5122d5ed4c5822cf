package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"
)

// deployFiles are the texts of deploy by their paths in it.
func deployFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(weirtest.DeployDir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[path] = weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// object is a YAML or JSON document.
type object = map[string]any

// documents reads all documents of a YAML text.
func documents(t *testing.T, name, text string) []object {
	t.Helper()
	var all []object
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, o)
	}
}

// at walks into maps by keys. It returns nil if there is nothing.
func at(o any, path ...string) any {
	for _, key := range path {
		m, _ := o.(object)
		o = m[key]
	}
	return o
}

// TestDeployedVariablesExist: what deploy sets, weir reads.
func TestDeployedVariablesExist(t *testing.T) {
	t.Parallel()
	known := []string{}
	for _, s := range (&environment.Settings{}).Redacted() {
		known = append(known, s.Name)
	}
	seen := map[string]bool{}
	for path, text := range deployFiles(t) {
		for _, name := range regexp.MustCompile(`\bWEIR_[A-Z_]*[A-Z]\b`).FindAllString(text, -1) {
			if stream := slices.Contains(connect.CommonStreams(), name) || name == "WEIR_NAME"; !slices.Contains(known, name) && !stream {
				t.Errorf("deploy/%s: weir knows no %s", path, name)
			}
			seen[name] = true
		}
	}
	if !seen["WEIR_HTTP_TOKEN"] || !seen["WEIR_NATS_INBOX"] || !seen["WEIR_SHUTDOWN_TIMEOUT"] {
		t.Error("the variables are not found any more: mend this test")
	}
}

// TestDashboardAndAlertsAskForWhatThereIs compares the names and labels in every expression with the series of a worker
// that runs.
func TestDashboardAndAlertsAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	chat := filepath.Join(t.TempDir(), "chat")
	if err := os.WriteFile(chat, []byte("http://127.0.0.1:1/"), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g="), 0o600); err != nil {
		t.Fatal(err)
	}
	left := func(context.Context, *fakeapi.Request) fakeapi.Behaviour {
		return fakeapi.Behaviour{Header: []fakeapi.Field{{Name: "X-Left", Value: "3"}, {Name: "X-Garbled", Value: "some"}}}
	}
	r := weirtest.NewRig(t, fakeapi.Options{Script: left}, `
apis:
  m:
    url: %s
    bucket: {rate: 1/h, capacity: 1}
    limits:
      - {name: daily, quota: 1000/day, left: "header:X-Left"}
      - {name: hourly, quota: 900/h, left: "header:X-Garbled"}
      - {name: tried, quota: 500/day, shadow: true}
    pack: {jobs: 2, wait: 0}
    callback: {url: "${file:`+chat+`}", secret: "${file:`+secret+`}"}
notifications: {chat: {url: "${file:`+chat+`}", format: slack}}
`)
	r.Producer().Submit("weir.jobs.m.k", []byte("1"), map[string]string{"Weir-Priority": "high"})
	r.AwaitCalls(1)
	for range 2 { // one waits, one is refused
		r.Producer().Submit("weir.jobs.m.k", []byte("2"), nil)
	}
	var labels map[string]map[string]bool
	r.Eventually("the series of the letter and of the excess", func() bool {
		labels = exported(t, r)
		return labels["weir_dead_letters_kept"] != nil && labels["weir_limit_vendor_excess_units"] != nil
	})
	expressions := append(dashboardExpressions(t), alertExpressions(t)...)
	autoscale := documents(t, "autoscale.yaml", weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "k8s", "autoscale.yaml")))[0]
	for _, trigger := range at(autoscale, "spec", "triggers").([]any) {
		expressions = append(expressions, at(trigger, "metadata", "query").(string))
	}
	asked := map[string]bool{}
	for _, e := range expressions {
		for _, series := range regexp.MustCompile(`\bweir_[a-z_]+`).FindAllString(e, -1) {
			asked[strings.TrimSuffix(series, "_bucket")] = true
			if labels[series] == nil {
				t.Errorf("%s: weir exports no %s", e, series)
			}
		}
		checkLabels(t, e, labels)
		if strings.Count(e, "(") != strings.Count(e, ")") || strings.Count(e, "[") != strings.Count(e, "]") || strings.Count(e, "{") != strings.Count(e, "}") {
			t.Errorf("%s: brackets do not match", e)
		}
	}
	for series := range labels {
		name := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(series, "")
		if strings.HasPrefix(series, "weir_") && !asked[name] {
			t.Errorf("nothing in deploy shows %s", name)
		}
	}
}

// checkLabels holds every label in an expression against those that exist, on weir's series or by Prometheus itself.
func checkLabels(t *testing.T, expression string, labels map[string]map[string]bool) {
	t.Helper()
	known := map[string]bool{"le": true, "instance": true, "job": true}
	for _, of := range labels {
		for name := range of {
			known[name] = true
		}
	}
	for _, m := range regexp.MustCompile(`by \(([^)]*)\)|([a-z_]+)=~?"`).FindAllStringSubmatch(expression, -1) {
		for name := range strings.SplitSeq(m[1]+m[2], ",") {
			if !known[strings.TrimSpace(name)] {
				t.Errorf("%s: there is no label %s", expression, name)
			}
		}
	}
}

// exported are a worker's series with their labels, as its /metrics tells.
func exported(t *testing.T, r *weirtest.Rig) map[string]map[string]bool {
	t.Helper()
	series := map[string]map[string]bool{}
	for line := range strings.Lines(r.HTTP().Get("/metrics")) {
		m := regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+\n$`).FindStringSubmatch(line)
		if m == nil {
			continue
		}
		series[m[1]] = map[string]bool{}
		for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[2], -1) {
			series[m[1]][l[1]] = true
		}
	}
	return series
}

func dashboardExpressions(t *testing.T) []string {
	t.Helper()
	var dashboard struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal([]byte(weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "grafana", "weir.json"))), &dashboard); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	var all []string
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || len(p.Targets) == 0 {
			t.Errorf("panel %d %q is not in order", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 20 {
		t.Errorf("the dashboard has only %d expressions", len(all))
	}
	return all
}

// alertExpressions also holds that every alert says what to do.
func alertExpressions(t *testing.T) []string {
	t.Helper()
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	d := yaml.NewDecoder(strings.NewReader(weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "prometheus", "alerts.yaml"))))
	d.KnownFields(true)
	if err := d.Decode(&rules); err != nil {
		t.Fatal(err)
	}
	runbook := strings.ToLower(weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "runbook.md")))
	var all []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
			anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], "https://weir.example/runbook.md#")
			if !ok || !strings.Contains(runbook, "\n## "+anchor+"\n") {
				t.Errorf("%s: the runbook has no %q", r.Alert, r.Annotations["runbook_url"])
			}
			if severity := r.Labels["severity"]; severity != "page" && severity != "warning" {
				t.Errorf("%s has the severity %q, by which no Alertmanager routes", r.Alert, severity)
			}
			if _, err := time.ParseDuration(r.For + "0s"); r.Alert == "" || r.Annotations["summary"] == "" || err != nil {
				t.Errorf("alert %q is not complete", r.Alert)
			}
		}
	}
	return all
}

// TestComposeHolds: every service has what it refers to, and stopping lasts longer than weir's own patience.
func TestComposeHolds(t *testing.T) {
	t.Parallel()
	compose := documents(t, "compose.yaml", composeWithNothingSet(t))[0]
	services, volumes, configs := compose["services"].(object), compose["volumes"].(object), compose["configs"].(object)
	for name, service := range services {
		dependencies, _ := at(service, "depends_on").(object)
		for other := range dependencies {
			if at(services[other], "healthcheck") == nil {
				t.Errorf("%s waits for the health of %s, which is not checked", name, other)
			}
		}
		mounts, _ := at(service, "volumes").([]any)
		for _, mount := range mounts {
			source, _, _ := strings.Cut(mount.(string), ":")
			if _, ok := volumes[source]; ok {
				continue
			}
			if _, err := os.Stat(filepath.Join(weirtest.DeployDir, "compose", source)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		named, _ := at(service, "configs").([]any)
		for _, c := range named {
			if source := at(c, "source").(string); configs[source] == nil || at(configs[source], "content") == "" {
				t.Errorf("%s: there is no configuration %v", name, c)
			}
		}
	}
	stop, err := time.ParseDuration(at(services["weir-1"], "stop_grace_period").(string))
	patience, err2 := time.ParseDuration(at(services["weir-1"], "environment", "WEIR_SHUTDOWN_TIMEOUT").(string))
	if err != nil || err2 != nil || stop <= patience {
		t.Errorf("stop_grace_period %s, WEIR_SHUTDOWN_TIMEOUT %s: %v %v", stop, patience, err, err2)
	}
	example := weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "compose", "env.example"))
	text := weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "compose", "compose.yaml"))
	for _, m := range regexp.MustCompile(`\$\{([A-Z_]+)[:}]`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(example, "\n"+m[1]+"=") {
			t.Errorf("env.example has no %s", m[1])
		}
	}
}

// composeWithNothingSet is compose's file as `docker compose` reads it where no variable is set and there is no .env.
func composeWithNothingSet(t *testing.T) string {
	t.Helper()
	text := regexp.MustCompile(`(?m)(^|\s)#.*$`).ReplaceAllString(weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "compose", "compose.yaml")), "")
	return regexp.MustCompile(`\$\{[^}]*\}|\$[A-Z_]+`).ReplaceAllStringFunc(text, func(variable string) string {
		m := regexp.MustCompile(`^\$\{([A-Z_]+):-([^}]+)\}$`).FindStringSubmatch(variable)
		switch {
		case m == nil:
			t.Errorf("%s has no default: compose does not start with nothing set", variable)
			return ""
		case strings.HasPrefix(m[1], "NATS_") && (m[2][0] < 'a' || m[2][0] > 'z'):
			t.Errorf("%s: NATS takes what begins with a digit for a number", variable)
		}
		return m[2]
	})
}

// TestComposeConfigurationRuns: the configuration that compose mounts is valid, has every secret that it names, and calls a service
// that compose has.
func TestComposeConfigurationRuns(t *testing.T) {
	t.Parallel()
	compose := documents(t, "compose.yaml", composeWithNothingSet(t))[0]
	for _, name := range []string{"weir-1", "weir-2"} {
		service := compose["services"].(object)[name]
		for variable, value := range at(service, "environment").(object) {
			text, _ := value.(string)
			if text == "" {
				t.Errorf("%s: %s is empty", name, variable)
			}
		}
		if test := fmt.Sprint(at(service, "healthcheck", "test")); test != "[CMD /weir health]" {
			t.Errorf("%s: its health is checked by %s", name, test)
		}
	}
	text := weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "compose", "weir.yaml"))
	c, err := config.Parse([]byte(text), config.Options{Name: "weir.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range secretOf.FindAllStringSubmatch(text, -1) {
		for _, name := range []string{"weir-1", "weir-2"} {
			if at(compose["services"].(object)[name], "environment").(object)[m[1]] == nil {
				t.Errorf("%s lacks the secret %s", name, m[1])
			}
		}
	}
	for i := range c.APIs {
		if host := c.APIs[i].URL.Hostname(); compose["services"].(object)[host] == nil {
			t.Errorf("%s calls %s, which is no service of compose", c.APIs[i].Name, host)
		}
	}
}

// TestComposeClusterForms starts three nats-servers with compose's configuration, except for addresses.
func TestComposeClusterForms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf := weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "compose", "nats.conf"))
	weirtest.WriteFile(t, filepath.Join(dir, "accounts.conf"), weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "nats", "accounts.conf")))
	var cluster []*server.Server
	var routes []string
	for range 3 {
		routes = append(routes, "nats://"+servers.FreePort(t))
	}
	for i, name := range []string{"nats-1", "nats-2", "nats-3"} {
		weirtest.WriteFile(t, filepath.Join(dir, "nats.conf"), "NATS_NAME: "+name+"\n"+conf)
		opts, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
		if err != nil {
			t.Fatal(err)
		}
		if len(opts.Routes) != 3 || opts.ServerName != name || !opts.SyncAlways || !opts.JetStream {
			t.Fatalf("the configuration does not say what it should: %+v", opts)
		}
		cluster = append(cluster, servers.StartNATS(t, servers.Clustered(opts, routes, i, t.TempDir())))
	}
	url := "nats://worker:secret-of-worker@" + cluster[0].Addr().String()
	servers.AwaitCluster(t, cluster)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 100/s, capacity: 2}\n")
	s := program.ExternalSettingsWith(t, url, file, map[string]string{"WEIR_REPLICAS": "3", "WEIR_NATS_INBOX": "_INBOX.worker", "WEIR_PARTITIONS": "1"})
	w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
}

// TestSystemdUnitHolds lets systemd itself check the unit, if it is installed.
func TestSystemdUnitHolds(t *testing.T) {
	t.Parallel()
	text := weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "systemd", "weir.service"))
	var stop, patience time.Duration
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "TimeoutStopSec="); ok {
			stop, _ = time.ParseDuration(v)
		}
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Environment=WEIR_SHUTDOWN_TIMEOUT="); ok {
			patience, _ = time.ParseDuration(v)
		}
	}
	if !strings.Contains(text, "\nExecReload=/bin/kill -HUP $MAINPID\n") {
		t.Error("the unit does not say how weir reads its file anew")
	}
	if patience == 0 || stop <= patience {
		t.Errorf("TimeoutStopSec %s, WEIR_SHUTDOWN_TIMEOUT %s", stop, patience)
	}
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	unit := filepath.Join(t.TempDir(), "weir.service")
	weirtest.WriteFile(t, unit, strings.Replace(text, "ExecStart=/usr/bin/weir", "ExecStart="+os.Args[0], 1))
	var out bytes.Buffer
	cmd := exec.CommandContext(await.Context(t, "systemd-analyze"), tool, "verify", unit)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil || out.Len() > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out.String())
	}
}
