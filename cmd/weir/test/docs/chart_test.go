package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// helm runs the tool that make has installed beside the linter.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	tools, _ := filepath.Glob(filepath.Join(weirtest.Repository, "bin", "tools", "helm-v*"))
	if len(tools) == 0 {
		t.Skip("helm is not there: `make chart` installs it")
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(await.Context(t, "helm"), tools[len(tools)-1], args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// rendered are the objects that the chart comes to, by their kinds.
func rendered(t *testing.T, values ...string) map[string]object {
	t.Helper()
	args := []string{"template", "weir", filepath.Join(weirtest.DeployDir, "helm", "weir"), "--namespace", "weir", "--kube-version", "1.30.0"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	text, errs, err := helm(t, args...)
	if err != nil {
		t.Fatalf("helm %v: %v\n%s", args, err, errs)
	}
	kinds := map[string]object{}
	for _, o := range documents(t, "the chart", text) {
		kind, _ := o["kind"].(string)
		if kinds[kind] != nil || at(o, "metadata", "name") != "weir" {
			t.Fatalf("%s %v: there is another, or it has a strange name", kind, at(o, "metadata", "name"))
		}
		kinds[kind] = o
	}
	return kinds
}

// notOfHelm are the lines of a rendered object that only concern a release of Helm.
var notOfHelm = regexp.MustCompile(`(?m)^(---|# Source: .*| +(helm\.sh/chart|app\.kubernetes\.io/(version|managed-by)): .*| +annotations:\n +checksum/config: .*)\n`)

// TestChartSaysWhatTheManifestsSay: deploy/k8s has what the chart renders with default values, without what concerns a release.
// UPDATE_GOLDEN=1 writes it, after a change of the chart.
func TestChartSaysWhatTheManifestsSay(t *testing.T) {
	t.Parallel()
	for template, file := range map[string]string{
		"workload": "deployment", "service": "service", "poddisruptionbudget": "poddisruptionbudget", "networkpolicy": "networkpolicy",
		"servicemonitor": "servicemonitor", "prometheusrule": "prometheusrule",
	} {
		text, errs, err := helm(t, "template", "weir", filepath.Join(weirtest.DeployDir, "helm", "weir"), "--kube-version", "1.30.0",
			"--set", "serviceMonitor.enabled=true,prometheusRule.enabled=true,image.tag=latest", "--show-only", "templates/"+template+".yaml")
		if err != nil {
			t.Fatalf("%s: %v\n%s", template, err, errs)
		}
		text = notOfHelm.ReplaceAllString(text, "")
		path := filepath.Join(weirtest.DeployDir, "k8s", file+".yaml")
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // it is for everybody
				t.Fatal(err)
			}
		} else if weirtest.MustRead(t, path) != text {
			t.Errorf("%s is not what the chart renders: make manifests", path)
		}
	}
	chart := rendered(t)
	if got := at(chart["ConfigMap"], "data", "weir.yaml"); strings.TrimSpace(got.(string)) != strings.TrimSpace(weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "k8s", "weir.yaml"))) {
		t.Errorf("the chart's weir.yaml is\n%v", got)
	}
	if len(chart) != 5 {
		t.Errorf("the chart comes to %d objects", len(chart))
	}
}

// TestChartHolds: what the values offer renders as Kubernetes requires: selectors match, ports and volumes exist,
// variables exist.
func TestChartHolds(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{
		{"serviceMonitor.enabled=true", "prometheusRule.enabled=true", "serviceMonitor.labels.release=prometheus"},
		{"nats.inside=true", "replicaCount=1", "persistence.storageClass=fast", "networkPolicy.producers[0].podSelector.matchLabels.app=shop"},
		{"redis.enabled=false", "replicaCount=1", "filesSecret=", "podDisruptionBudget.enabled=false", "networkPolicy.enabled=false", "image.digest=sha256:" + strings.Repeat("a", 64)},
		{"ingress.enabled=true", "ingress.hosts[0]=weir.shop.example", "ingress.className=nginx", "ingress.tls[0].secretName=tls", "serviceAccountName=caller"},
	} {
		chart := rendered(t, values...)
		inside := slices.Contains(values, "nats.inside=true")
		kind := "Deployment"
		if inside {
			kind = "StatefulSet"
		}
		pods := chart[kind]
		labels := at(pods, "spec", "template", "metadata", "labels")
		selectors := map[string]any{
			kind: at(pods, "spec", "selector", "matchLabels"), "Service": at(chart["Service"], "spec", "selector"),
			"PodDisruptionBudget": at(chart["PodDisruptionBudget"], "spec", "selector", "matchLabels"),
			"NetworkPolicy":       at(chart["NetworkPolicy"], "spec", "podSelector", "matchLabels"),
			"ServiceMonitor":      at(chart["ServiceMonitor"], "spec", "selector", "matchLabels"),
		}
		for what, selector := range selectors {
			if chart[what] != nil && !reflect.DeepEqual(selector, labels) {
				t.Errorf("%v: %s selects %v, the pods have %v", values, what, selector, labels)
			}
		}
		checkChartPod(t, values, pods)
		checkIngress(t, chart)
		wantStrategy := any("RollingUpdate")
		switch {
		case inside:
			wantStrategy = nil
		case slices.Contains(values, "redis.enabled=false"):
			wantStrategy = "Recreate" // weir refuses to share limits without Redis, also with a pod that is about to end
		}
		if got := at(pods, "spec", "strategy", "type"); got != wantStrategy {
			t.Errorf("%v: the strategy is %v", values, got)
		}
		if inside != (at(pods, "spec", "volumeClaimTemplates") != nil) {
			t.Errorf("%v: the volumes are %v", values, at(pods, "spec", "volumeClaimTemplates"))
		}
		if rule := chart["PrometheusRule"]; rule != nil {
			alerts := documents(t, "alerts.yaml", weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "prometheus", "alerts.yaml")))[0]
			if !reflect.DeepEqual(at(rule, "spec", "groups"), alerts["groups"]) {
				t.Error("the chart's alerts are not those of deploy/prometheus")
			}
		}
	}
	if _, errs, err := helm(t, "template", "weir", filepath.Join(weirtest.DeployDir, "helm", "weir"), "--kube-version", "1.30.0", "--set", "nats.inside=true"); err == nil || !strings.Contains(errs, "set replicaCount to 1") {
		t.Errorf("two pods with a server inside each: %v %s", err, errs)
	}
	for config, want := range map[string]string{
		"":                                       "api credit-check has shared limits",
		"apis: {pay: {account: openai}}":         "api pay has shared limits",
		"apis: {pay: {url: 'http://pay/'}}":      "",
		"apis: {pay: {limits: []}\\, sms: null}": "",
	} {
		_, errs, err := helm(t, "template", "weir", filepath.Join(weirtest.DeployDir, "helm", "weir"), "--kube-version", "1.30.0", "--set", "redis.enabled=false,config="+config)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(errs, want)) {
			t.Errorf("two pods without Redis with %q: %v %s", config, err, errs)
		}
	}
	if out, errs, err := helm(t, "lint", "--strict", filepath.Join(weirtest.DeployDir, "helm", "weir")); err != nil || strings.Contains(out+errs, "symbolic link") {
		t.Errorf("helm lint: %v\n%s%s", err, out, errs)
	}
}

// checkIngress holds that an Ingress leads to the Service's port, and that its controller may reach the pods.
func checkIngress(t *testing.T, chart map[string]object) {
	t.Helper()
	ingress := chart["Ingress"]
	if ingress == nil {
		return
	}
	rule := at(ingress, "spec").(object)["rules"].([]any)[0]
	backend := at(at(rule, "http").(object)["paths"].([]any)[0], "backend", "service")
	port := at(chart["Service"], "spec").(object)["ports"].([]any)[0]
	if at(rule, "host") != "weir.shop.example" || at(backend, "name") != "weir" || at(backend, "port", "name") != at(port, "name") || at(ingress, "spec", "ingressClassName") != "nginx" {
		t.Errorf("the Ingress is %v", ingress["spec"])
	}
	if policy := fmt.Sprint(at(chart["NetworkPolicy"], "spec", "ingress")); !strings.Contains(policy, "ingress-nginx") {
		t.Errorf("the Ingress' controller may not reach the pods: %s", policy)
	}
	if name := at(chart["Deployment"], "spec", "template", "spec", "serviceAccountName"); name != "caller" {
		t.Errorf("the pods run as %v", name)
	}
}

// TestChartRefusesWhatItDoesNotKnow: a mistyped name or value is refused with its place, and none passes for the default.
func TestChartRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for value, place := range map[string]string{
		"replicas=3": "'replicas' not allowed", "image.pullpolicy=Always": "'/image'", "replicaCount=two": "'/replicaCount'",
		"nats.inside=maybe": "'/nats/inside'", "logFormat=xml": "'/logFormat'", "shutdownTimeout=45": "'/shutdownTimeout'",
		"networkPolicy.apis.ports[0]=https": "'/networkPolicy/apis/ports/0'", "ingress.enabled=true": "'/ingress/hosts'",
		"image.digest=sha256:abc": "'/image/digest'", "redis.enabeld=false": "'/redis'",
	} {
		_, errs, err := helm(t, "template", "weir", filepath.Join(weirtest.DeployDir, "helm", "weir"), "--kube-version", "1.30.0", "--set", value)
		if err == nil || !strings.Contains(errs, place) {
			t.Errorf("--set %s: %v %s", value, err, errs)
		}
	}
}

// TestChartSchemaKnowsTheValues: what values.yaml names is in the schema and the other way about, and the chart has files of its own, as helm
// warns of links in each command.
func TestChartSchemaKnowsTheValues(t *testing.T) {
	t.Parallel()
	chart := filepath.Join(weirtest.DeployDir, "helm", "weir")
	schema := documents(t, "values.schema.json", weirtest.MustRead(t, filepath.Join(chart, "values.schema.json")))[0]
	sameValues(t, "", documents(t, "values.yaml", weirtest.MustRead(t, filepath.Join(chart, "values.yaml")))[0], schema)
	for copied, source := range map[string]string{"alerts.yaml": "prometheus/alerts.yaml", "weir.yaml": "k8s/weir.yaml"} {
		path := filepath.Join(chart, "files", copied)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s is no file: %v %v", path, info, err)
		}
		if weirtest.MustRead(t, path) != weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, source)) {
			t.Errorf("%s differs from deploy/%s: make manifests", path, source)
		}
	}
}

// sameValues holds a mapping of values.yaml against what its schema names.
func sameValues(t *testing.T, path string, values, schema object) {
	t.Helper()
	known, _ := schema["properties"].(object)
	if known == nil {
		return // whatever Kubernetes takes
	}
	for name, value := range values {
		of, _ := known[name].(object)
		if of == nil {
			t.Errorf("the schema does not know %s.%s", path, name)
		} else if deeper, ok := value.(object); ok {
			sameValues(t, path+"."+name, deeper, of)
		}
	}
	for name := range known {
		if path == "" && name != "global" && values[name] == nil {
			t.Errorf("values.yaml does not name %s", name)
		}
	}
	if schema["additionalProperties"] != false {
		t.Errorf("the schema takes anything under %q", path)
	}
}

// checkChartPod checks that a pod has the volumes that it mounts, that weir knows its variables, that its probes ask
// weir's port, and that its container has no right that weir does not need.
func checkChartPod(t *testing.T, values []string, pods object) {
	t.Helper()
	pod := at(pods, "spec", "template", "spec").(object)
	container := pod["containers"].([]any)[0].(object)
	volumes := map[any]bool{}
	for _, v := range pod["volumes"].([]any) {
		volumes[at(v, "name")] = true
	}
	claims, _ := at(pods, "spec", "volumeClaimTemplates").([]any)
	for _, v := range claims {
		volumes[at(v, "metadata", "name")] = true
	}
	for _, m := range container["volumeMounts"].([]any) {
		if !volumes[at(m, "name")] {
			t.Errorf("%v: there is no volume %v", values, at(m, "name"))
		}
	}
	known := map[string]bool{}
	for _, s := range (&environment.Settings{}).Redacted() {
		known[s.Name] = true
	}
	for _, e := range container["env"].([]any) {
		if name := at(e, "name").(string); strings.HasPrefix(name, "WEIR_") && !known[name] {
			t.Errorf("%v: weir knows no %s", values, name)
		}
	}
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		if at(container, probe, "httpGet", "port") != container["ports"].([]any)[0].(object)["name"] {
			t.Errorf("%v: %s does not ask weir's port", values, probe)
		}
	}
	if at(pod, "securityContext", "fsGroup") != nil && at(pod, "securityContext", "fsGroupChangePolicy") != "OnRootMismatch" {
		t.Errorf("%v: each mount gives the group rights to the files with credentials", values)
	}
	if at(pod, "securityContext", "runAsNonRoot") != true || at(container, "securityContext", "readOnlyRootFilesystem") != true {
		t.Errorf("%v: the container may do more than it needs", values)
	}
}
