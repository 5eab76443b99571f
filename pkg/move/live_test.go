package move_test

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

func TestConnect(t *testing.T) {
	folder := t.TempDir()
	broken := filepath.Join(folder, "broken")
	if err := os.WriteFile(broken, []byte("a: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(folder, "missing"), broken} {
		if _, _, err := move.Connect(file, ""); !errors.Is(err, move.ErrKubeconfig) {
			t.Errorf("%s: got the error %v, want ErrKubeconfig", file, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = move.Live(t.Context(), &rest.Config{Host: "http://" + address}, "default", false)
	if !errors.Is(err, move.ErrUnreachable) || !strings.Contains(err.Error(), address) {
		t.Errorf("got the error %v, want ErrUnreachable with the address", err)
	}
}

func TestUnauthorized(t *testing.T) {
	w := theWorld(t)
	config := rest.AnonymousClientConfig(w.config)
	config.BearerToken = "expired"
	if _, err := move.Live(t.Context(), config, "default", false); !errors.Is(err, move.ErrUnauthorized) {
		t.Errorf("got the error %v, want ErrUnauthorized", err)
	}
}

// TestForbidden checks that a user gets the permitted objects and the missing rules, and with these rules all objects.
func TestForbidden(t *testing.T) {
	w := theWorld(t)
	s := newScenario(2000, "forbidden")
	w.install(t, s)
	defer w.remove(t, s, true)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "list"}},
		{
			APIGroups: []string{"cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "ipam.cluster.x-k8s.io", "addons.cluster.x-k8s.io", "images.example.com"},
			Resources: []string{"*"}, Verbs: []string{"get", "list"},
		},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}},
	}
	lacking := []rbacv1.PolicyRule{
		{APIGroups: []string{"clusterctl.cluster.x-k8s.io"}, Resources: []string{"providers", "metadata"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"runtime.cluster.x-k8s.io"}, Resources: []string{"extensionconfigs"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Rules: rules}
	w.create(t, role)
	w.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "viewer"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "viewer"},
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := w.addUser(kubeconfig, envtest.User{Name: "viewer"}); err != nil {
		t.Fatal(err)
	}
	config, namespace, err := move.Connect(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	if namespace != "default" {
		t.Errorf("the namespace of the context is %q", namespace)
	}
	plan := func() *move.Plan {
		world, err := move.Live(t.Context(), config, s.space, false)
		if err != nil {
			t.Fatal(err)
		}
		return move.Discover(t.Context(), world, s.space).Plan()
	}
	got := plan()
	if !got.Incomplete || got.Created() == 0 {
		t.Errorf("incomplete is %v and %d objects are moved, want an incomplete plan with moved objects", got.Incomplete, got.Created())
	}
	var missingRules []string
	for _, p := range got.Problems {
		if _, rule, ok := strings.Cut(p.Message, "with the rule "); ok {
			missingRules = append(missingRules, rule)
		}
	}
	slices.Sort(missingRules)
	want := []string{
		`{apiGroups: [""], resources: ["secrets"], verbs: [get, list]}`,
		`{apiGroups: ["clusterctl.cluster.x-k8s.io"], resources: ["metadata"], verbs: [get, list]}`,
		`{apiGroups: ["clusterctl.cluster.x-k8s.io"], resources: ["providers"], verbs: [get, list]}`,
		`{apiGroups: ["runtime.cluster.x-k8s.io"], resources: ["extensionconfigs"], verbs: [get, list]}`,
	}
	if diff := cmp.Diff(want, slices.Compact(missingRules)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}

	role.Rules = append(role.Rules, lacking...)
	if err := w.client.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	// The authorizer watches roles, so that it needs a moment.
	for range 100 {
		if got = plan(); !got.Incomplete {
			break
		}
	}
	if got.Incomplete {
		t.Errorf("got the problems %v, want none", got.Problems)
	}
	if diff := cmp.Diff(summary(w.plan(t, s.space)), summary(got)); diff != "" {
		t.Errorf("plan of an administrator and of the viewer (-admin +viewer):\n%s", diff)
	}
}

// TestNoCRDs checks that a user who may not read CRDs gets an incomplete plan with the objects.
func TestNoCRDs(t *testing.T) {
	w := theWorld(t)
	s := newScenario(2002, "nocrds")
	w.install(t, s)
	defer w.remove(t, s, true)
	w.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "blind"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
	}})
	w.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "blind"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "blind"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "blind"},
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := w.addUser(kubeconfig, envtest.User{Name: "blind"}); err != nil {
		t.Fatal(err)
	}
	config, _, err := move.Connect(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	world, err := move.Live(t.Context(), config, s.space, false)
	if err != nil {
		t.Fatal(err)
	}
	plan := move.Discover(t.Context(), world, s.space).Plan()
	reported := slices.ContainsFunc(plan.Problems, func(p move.Problem) bool {
		return strings.Contains(p.Message, `resources: ["customresourcedefinitions"]`)
	})
	if !plan.Incomplete || !reported || len(plan.Assumptions) == 0 || plan.Created() == 0 {
		t.Errorf("incomplete %v, problems %v, assumptions %v, created %d", plan.Incomplete, plan.Problems, plan.Assumptions, plan.Created())
	}
}

// TestSecretsOfIdentities checks that a Secret is linked to the move and left behind if an identity without a namespace
// names it but does not own it. Other Secrets of the provider's namespace are not linked.
func TestSecretsOfIdentities(t *testing.T) {
	w := theWorld(t)
	s := &scenario{random: rand.New(rand.NewPCG(2003, 1)), seed: 2003, space: "identities-2003", second: "identities-2003-b"}
	identity := s.demo("DemoIdentity", "")
	unowned, other := s.name("unowned"), s.name("other")
	identity.Object["spec"] = map[string]any{"secretRef": map[string]any{"name": unowned}}
	s.add("v1", "Secret", providerNamespace, unowned, nil)
	s.add("v1", "Secret", providerNamespace, other, nil)
	s.add("v1", "Secret", s.space, unowned, nil) // the name alone doesn't link it to the identity
	w.install(t, s)
	defer w.remove(t, s, true)
	world, err := move.Live(t.Context(), w.config, s.space, false)
	if err != nil {
		t.Fatal(err)
	}
	plan := move.Discover(t.Context(), world, s.space).Plan()
	var left []string
	for _, l := range plan.LeftBehind {
		left = append(left, l.Object.String()+": "+l.Why)
		if !l.Linked {
			t.Errorf("%s isn't linked to the move", l.Object)
		}
	}
	want := []string{"Secret " + providerNamespace + "/" + unowned + ": " + "DemoIdentity " + identity.GetName() +
		" names it, and it has no owner that is moved, and no label to move it"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}
