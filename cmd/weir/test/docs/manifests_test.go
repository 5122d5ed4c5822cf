package docs

import (
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/weirtest"
)

// TestManifestsHold: every manifest has what Kubernetes needs of it, selectors match the pods, and what is referred to
// is there.
func TestManifestsHold(t *testing.T) {
	t.Parallel()
	manifests := map[string]object{} // by kind and name
	for path, text := range deployFiles(t) {
		if !strings.HasPrefix(path, "k8s/") || path == "k8s/weir.yaml" {
			continue
		}
		for _, o := range documents(t, path, text) {
			kind, _ := o["kind"].(string)
			name, _ := at(o, "metadata", "name").(string)
			if version, _ := o["apiVersion"].(string); kind == "" || version == "" || name == "" && kind != "Kustomization" {
				t.Errorf("%s: an object without kind, version or name", path)
			}
			manifests[kind+"/"+name] = o
			manifests[path] = o
		}
	}
	for _, path := range at(manifests["Kustomization/"], "resources").([]any) {
		if manifests["k8s/"+path.(string)] == nil {
			t.Errorf("the kustomization names %v, which is not there", path)
		}
	}
	pods := manifests["Deployment/weir"]
	labels := at(pods, "spec", "template", "metadata", "labels")
	for what, selector := range map[string]any{
		"Deployment":          at(pods, "spec", "selector", "matchLabels"),
		"Service":             at(manifests["Service/weir"], "spec", "selector"),
		"PodDisruptionBudget": at(manifests["PodDisruptionBudget/weir"], "spec", "selector", "matchLabels"),
		"NetworkPolicy":       at(manifests["NetworkPolicy/weir"], "spec", "podSelector", "matchLabels"),
	} {
		if s, ok := selector.(object); !ok || len(s) == 0 || !maps.Equal(s, labels.(object)) {
			t.Errorf("%s selects %v, the pods have %v", what, selector, labels)
		}
	}
	checkContainer(t, manifests)
	if _, err := config.Parse([]byte(weirtest.MustRead(t, filepath.Join(weirtest.DeployDir, "k8s", "weir.yaml"))), config.Options{Name: "weir.yaml"}); err != nil {
		t.Error(err)
	}
}

// TestMonitoringHolds: the Prometheus operator is given the alerts that promtool tests, and a scraper that finds the port and the token.
func TestMonitoringHolds(t *testing.T) {
	t.Parallel()
	read := func(parts ...string) object {
		t.Helper()
		path := filepath.Join(append([]string{weirtest.DeployDir}, parts...)...)
		return documents(t, path, weirtest.MustRead(t, path))[0]
	}
	rules, alerts := read("k8s", "prometheusrule.yaml"), read("prometheus", "alerts.yaml")
	if rules["kind"] != "PrometheusRule" || !reflect.DeepEqual(at(rules, "spec"), any(alerts)) {
		t.Error("deploy/k8s/prometheusrule.yaml has other alerts than deploy/prometheus/alerts.yaml: make manifests")
	}
	monitor, service, secret := read("k8s", "servicemonitor.yaml"), read("k8s", "service.yaml"), read("k8s", "secret.example.yaml")
	if want := at(service, "metadata", "labels"); !reflect.DeepEqual(at(monitor, "spec", "selector", "matchLabels"), want) {
		t.Errorf("the ServiceMonitor does not select the Service, which has %v", want)
	}
	endpoint := at(monitor, "spec", "endpoints").([]any)[0]
	if port := at(service, "spec", "ports").([]any)[0]; at(endpoint, "port") != at(port, "name") || at(endpoint, "path") != "/metrics" {
		t.Errorf("the ServiceMonitor scrapes %v of %v", endpoint, port)
	}
	key := at(endpoint, "authorization", "credentials", "key").(string)
	if at(secret, "stringData", key) == nil || at(endpoint, "authorization", "credentials", "name") != at(secret, "metadata", "name") {
		t.Errorf("the ServiceMonitor takes its token from %v, which is not there", at(endpoint, "authorization"))
	}
}

// checkContainer holds weir's container: rights, secrets, ports, and that it may finish its calls.
func checkContainer(t *testing.T, manifests map[string]object) {
	t.Helper()
	pod := at(manifests["Deployment/weir"], "spec", "template", "spec").(object)
	c := pod["containers"].([]any)[0].(object)
	env := map[string]string{}
	for _, e := range c["env"].([]any) {
		name := at(e, "name").(string)
		env[name], _ = at(e, "value").(string)
		if ref, ok := at(e, "valueFrom", "secretKeyRef").(object); ok {
			if at(manifests["Secret/"+ref["name"].(string)], "stringData", ref["key"].(string)) == nil {
				t.Errorf("%s refers to %v, which is not there", name, ref)
			}
		}
	}
	grace, _ := pod["terminationGracePeriodSeconds"].(int)
	if patience, err := time.ParseDuration(env["WEIR_SHUTDOWN_TIMEOUT"]); err != nil || time.Duration(grace)*time.Second <= patience {
		t.Errorf("terminationGracePeriodSeconds %d, WEIR_SHUTDOWN_TIMEOUT %s", grace, patience)
	}
	volumes := map[any]bool{}
	for _, v := range pod["volumes"].([]any) {
		volumes[at(v, "name")] = true
	}
	for _, m := range c["volumeMounts"].([]any) {
		if !volumes[at(m, "name")] {
			t.Errorf("there is no volume %v", at(m, "name"))
		}
	}
	port := c["ports"].([]any)[0].(object)
	if !strings.HasSuffix(env["WEIR_HTTP_LISTEN"], ":8480") || port["containerPort"] != 8480 {
		t.Errorf("weir listens on %s, its port is %v", env["WEIR_HTTP_LISTEN"], port)
	}
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		if at(c, probe, "httpGet", "port") != port["name"] {
			t.Errorf("%s does not ask weir's port", probe)
		}
	}
	if at(pod, "securityContext", "runAsNonRoot") != true || at(c, "securityContext", "readOnlyRootFilesystem") != true ||
		at(c, "securityContext", "allowPrivilegeEscalation") != false {
		t.Error("the container may do more than it needs")
	}
}
