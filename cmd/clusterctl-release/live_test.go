package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/internal/schematest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move/draw"
)

// management is a real API server with a Cluster, the Cluster's objects, and an object that is not moved.
type management struct {
	environment *envtest.Environment
	client      client.Client
	folder      string
}

// startManagement starts the API server. It skips the test if there is none.
func startManagement(t *testing.T) *management {
	t.Helper()
	prerequisite.APIServer(t)
	log.SetLogger(logr.Discard())
	environment := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{
		anyCRD("cluster.x-k8s.io", "v1beta2", "Cluster"), anyCRD("cluster.x-k8s.io", "v1beta2", "Machine"),
		anyCRD("infrastructure.cluster.x-k8s.io", "v1beta1", "DemoCluster"), anyCRD("infrastructure.cluster.x-k8s.io", "v1beta1", "DemoDisk"),
	}}
	config, err := environment.Start()
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &management{environment: environment, client: c, folder: t.TempDir()}
	m.create(t, "v1", "Namespace", "team", nil, nil)
	cluster := m.create(t, "cluster.x-k8s.io/v1beta2", "Cluster", "a",
		map[string]any{"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DemoCluster", "name": "a"}}, nil)
	m.create(t, "infrastructure.cluster.x-k8s.io/v1beta1", "DemoCluster", "a", nil, cluster)
	m.create(t, "cluster.x-k8s.io/v1beta2", "Machine", "a-0", nil, cluster)
	m.create(t, "v1", "Secret", "a-kubeconfig", nil, cluster)
	m.create(t, "infrastructure.cluster.x-k8s.io/v1beta1", "DemoDisk", "lost", nil, nil)
	return m
}

// anyCRD returns the CRD of a kind with arbitrary fields and clusterctl's label.
func anyCRD(group, version, kind string) *apiextensionsv1.CustomResourceDefinition {
	anything, plural := true, strings.ToLower(kind)+"s"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Labels: map[string]string{"clusterctl.cluster.x-k8s.io": ""}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}},
			}},
		},
	}
}

// create creates an object in the namespace.
func (m *management) create(t *testing.T, apiVersion, kind, name string, spec map[string]any, owner *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	u.SetName(name)
	if kind != "Namespace" {
		u.SetNamespace("team")
	}
	if spec != nil {
		u.Object["spec"] = spec
	}
	if owner != nil {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}})
	}
	if err := m.client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	return u
}

// kubeconfig writes the kubeconfig of a user.
func (m *management) kubeconfig(t *testing.T, user envtest.User) string {
	t.Helper()
	added, err := m.environment.AddUser(user, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := added.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	return m.write(t, user.Name, string(content))
}

// tokenKubeconfig writes a kubeconfig with a server and an expired token.
func (m *management) tokenKubeconfig(t *testing.T, server string) string {
	t.Helper()
	return m.write(t, "token", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: expired}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server))
}

func (m *management) write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(m.folder, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLive runs the commands with a real API server.
func TestLive(t *testing.T) {
	m := startManagement(t)
	admin := m.kubeconfig(t, envtest.User{Name: "admin", Groups: []string{"system:masters"}})

	t.Run("graph", func(t *testing.T) {
		for _, format := range draw.Formats.Names() {
			stdout, stderr, status := runLive(t, "graph", admin, "--format", format)
			if status != exitFine || stderr != "" {
				t.Errorf("%s: status is %d; %s", format, status, stderr)
			}
			for _, want := range []string{"DemoCluster", "a-kubeconfig", "lost"} {
				if !strings.Contains(stdout, want) {
					t.Errorf("%s has no %s:\n%s", format, want, stdout)
				}
			}
		}
		stdout, _, _ := runLive(t, "graph", admin, "--format", "json")
		schematest.Validate(t, "graph.schema.json", []byte(stdout))
		want := map[string]string{"Cluster a": "moved", "DemoCluster a": "moved", "Machine a-0": "moved", "Secret a-kubeconfig": "moved", "DemoDisk lost": "left-behind"}
		for name, fate := range fatesOf(t, stdout) {
			if want[name] != fate && !strings.HasPrefix(name, "ConfigMap ") {
				t.Errorf("%s is %s, want %q", name, fate, want[name])
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("the graph lacks %v", want)
		}
	})

	t.Run("move-plan", func(t *testing.T) {
		stdout, stderr, status := runLive(t, "move-plan", admin)
		for _, want := range []string{"LEFT BEHIND: 1", "DemoDisk team/lost", "Machine team/a-0: it has no node yet"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("the plan has no %q:\n%s", want, stdout)
			}
		}
		if status != exitFindings || stderr != "" {
			t.Errorf("status is %d; %s", status, stderr)
		}
		stdout, _, _ = runLive(t, "move-plan", admin, "--format", "json")
		schematest.Validate(t, "move-plan.schema.json", []byte(stdout))
	})

	t.Run("check", func(t *testing.T) {
		stdout, _, status := runLive(t, "check", admin, "--format", "json", "--fail-on", "warning")
		if status != exitFindings || !strings.Contains(stdout, `"id": "orphan"`) {
			t.Errorf("status is %d, want a finding of orphan:\n%s", status, stdout)
		}
		schematest.Validate(t, "report.schema.json", []byte(stdout))
	})

	t.Run("some rights", func(t *testing.T) { m.someRights(t) })

	t.Run("expired credentials", func(t *testing.T) {
		file := m.tokenKubeconfig(t, "https://"+strings.TrimPrefix(m.environment.Config.Host, "https://"))
		for _, command := range []string{"graph", "move-plan", "check"} {
			if stdout, stderr, status := runLive(t, command, file); status != exitFailed || stdout != "" || !strings.Contains(stderr, "wrong or have expired; renew them") {
				t.Errorf("%s: status is %d; %s%s", command, status, stdout, stderr)
			}
		}
	})

	t.Run("an unreachable cluster", func(t *testing.T) {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		file := m.tokenKubeconfig(t, "https://"+address)
		for _, command := range []string{"graph", "move-plan", "check"} {
			if stdout, stderr, status := runLive(t, command, file); status != exitFailed || stdout != "" || !strings.Contains(stderr, "can't be reached") || !strings.Contains(stderr, address) {
				t.Errorf("%s: status is %d; %s%s", command, status, stdout, stderr)
			}
		}
	})
}

// someRights checks that a user with permissions for only some kinds gets an incomplete result and the missing rules.
func (m *management) someRights(t *testing.T) {
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "some"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{"infrastructure.cluster.x-k8s.io"}, Resources: []string{"democlusters"}, Verbs: []string{"get", "list"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "some"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "some"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "some"},
		},
	} {
		if err := m.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	file := m.kubeconfig(t, envtest.User{Name: "some"})
	for command, incomplete := range map[string]string{"graph": "INCOMPLETE", "move-plan": "INCOMPLETE", "check": ""} {
		stdout, stderr, status := runLive(t, command, file)
		if status != exitFailed || !strings.Contains(stderr, "incomplete") || !strings.Contains(stdout, incomplete) {
			t.Errorf("%s: status is %d, want %d and %q:\n%s%s", command, status, exitFailed, incomplete, stdout, stderr)
		}
		for _, rule := range []string{`resources: ["demodisks"], verbs: [get, list]}`, `resources: ["secrets"], verbs: [get, list]}`} {
			if !strings.Contains(stdout+stderr, rule) {
				t.Errorf("%s does not print the rule %s:\n%s%s", command, rule, stdout, stderr)
			}
		}
		if command != "check" && !strings.Contains(stdout, "DemoCluster team/a") {
			t.Errorf("%s does not show the readable objects:\n%s", command, stdout)
		}
	}
}

// runLive runs a command on a live cluster and returns its output and status.
func runLive(t *testing.T, command, kubeconfig string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, complaint bytes.Buffer
	status = run(t.Context(), append([]string{command, "--live", "--kubeconfig", kubeconfig, "--namespace", "team"}, args...), &out, &complaint)
	return out.String(), complaint.String(), status
}

// fatesOf returns the fates of the objects of a JSON graph by kind and name.
func fatesOf(t *testing.T, document string) map[string]string {
	t.Helper()
	var graph struct {
		Objects []struct {
			Object struct{ Kind, Name string }
			Fate   string
		}
	}
	if err := json.Unmarshal([]byte(document), &graph); err != nil {
		t.Fatal(err)
	}
	fates := map[string]string{}
	for _, o := range graph.Objects {
		fates[o.Object.Kind+" "+o.Object.Name] = o.Fate
	}
	return fates
}
