package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const namespace, account = "caplv-system", "manager"

// event returns a line of an audit log.
func event(user, verb, object, annotations string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":"` + verb +
		`","user":{"username":"` + user + `"},"objectRef":` + object + `,"annotations":{` + annotations + "}}\n"
}

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: strings.Split(groups, " "), Resources: strings.Fields(resources), ResourceNames: names}
}

// roles returns a cluster with a ClusterRole and a Role that are bound to the account.
func roles(t *testing.T, everywhere, inNamespace rbacv1.PolicyRule) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(rbacv1.AddToScheme(scheme)).To(Succeed())
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}}
	others := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "other", Name: account}}
	meta := func(in, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: in, Name: name} }
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&rbacv1.ClusterRole{ObjectMeta: meta("", "role"), Rules: []rbacv1.PolicyRule{everywhere, {Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}},
		&rbacv1.Role{ObjectMeta: meta(namespace, "role"), Rules: []rbacv1.PolicyRule{inNamespace}},
		&rbacv1.Role{ObjectMeta: meta("elsewhere", "role"), Rules: []rbacv1.PolicyRule{rule("escalate", "", "pods")}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "role"), Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "role"}},
		&rbacv1.RoleBinding{ObjectMeta: meta(namespace, "role"), Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "role"}},
		&rbacv1.RoleBinding{ObjectMeta: meta("elsewhere", "role"), Subjects: others, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "role"}},
	).Build()
}

// TestCompare checks unused grants, and requests without a grant.
func TestCompare(t *testing.T) {
	g := NewWithT(t)
	c := roles(t, rule("get patch", "infra", "hosts hosts/status"), rule("get patch list", "", "secrets", "kept"))
	grants, err := Grants(t.Context(), c, namespace, account)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(grants).To(HaveLen(4 + 3))

	user := Account(namespace, account)
	const allow, forbid = `"authorization.k8s.io/decision":"allow"`, `"authorization.k8s.io/decision":"forbid"`
	path := filepath.Join(t.TempDir(), "audit.log")
	g.Expect(os.WriteFile(path, []byte(
		event(user, "get", `{"apiGroup":"infra","resource":"hosts","name":"a"}`, allow)+
			event(user, "get", `{"apiGroup":"infra","resource":"hosts","name":"a"}`, allow)+
			event("somebody", "delete", `{"apiGroup":"infra","resource":"hosts","name":"a"}`, allow)+
			event(user, "get", `null`, allow)+
			event(user, "patch", `{"resource":"secrets","namespace":"caplv-system","name":"kept"}`, allow)+
			event(user, "patch", `{"resource":"secrets","namespace":"caplv-system","name":"another"}`, forbid)+
			event(user, "get", `{"resource":"secrets","namespace":"elsewhere","name":"kept"}`, forbid)+
			`{"kind":"Ev`), 0o600)).To(Succeed())
	// A rotated file of the log.
	g.Expect(os.WriteFile(strings.TrimSuffix(path, ".log")+"-2026-11-22T10-00-00.000.log", []byte(
		event(user, "patch", `{"apiGroup":"infra","resource":"hosts","subresource":"status","name":"a"}`, allow)), 0o600)).To(Succeed())
	requests, err := Requests(path, user)
	g.Expect(err).ToNot(HaveOccurred())

	refused, unused := Compare(grants, requests)
	texts := func(n int, text func(int) string) (all []string) {
		for i := range n {
			all = append(all, text(i))
		}
		return all
	}
	g.Expect(texts(len(refused), func(i int) string { return refused[i].String() })).To(Equal(
		[]string{"get secrets in elsewhere named kept", "patch secrets in caplv-system named another"}))
	g.Expect(texts(len(unused), func(i int) string { return unused[i].String() })).To(Equal(
		[]string{"get hosts.infra/status", "patch hosts.infra", "get secrets in caplv-system", "list secrets in caplv-system"}))
}

// TestRefused checks that a refused request is reported even if a grant seems to allow it.
func TestRefused(t *testing.T) {
	request := Request{Verb: "get", Resource: "secrets", Namespace: "n", Forbidden: true}
	refused, unused := Compare([]Grant{{Verb: "get", Resource: "secrets"}}, []Request{request})
	NewWithT(t).Expect(refused).To(Equal([]Request{request}))
	NewWithT(t).Expect(unused).To(BeEmpty())
}

// TestGrantedTwice checks that one of two grants for the same requests is unused.
func TestGrantedTwice(t *testing.T) {
	request := Request{Verb: "create", Resource: "events", Namespace: "n"}
	_, unused := Compare([]Grant{{Verb: "create", Resource: "events", Namespace: "n"}, {Verb: "create", Resource: "events"}}, []Request{request})
	NewWithT(t).Expect(unused).To(Equal([]Grant{{Verb: "create", Resource: "events", Namespace: "n"}}))
}

// TestWatched checks that grants of get and list count as needed only for a watched resource.
func TestWatched(t *testing.T) {
	grants := []Grant{{Verb: "get", Resource: "a"}, {Verb: "list", Resource: "a"}, {Verb: "watch", Resource: "a"}, {Verb: "get", Resource: "b"}, {Verb: "watch", Resource: "b"}}
	_, unused := Compare(grants, []Request{{Verb: "watch", Resource: "a"}})
	NewWithT(t).Expect(unused).To(Equal(grants[3:]))
}

func TestWildcards(t *testing.T) {
	_, err := Grants(t.Context(), roles(t, rule("get", "infra", "*"), rbacv1.PolicyRule{}), namespace, account)
	NewWithT(t).Expect(err).To(MatchError("ClusterRole role grants get *.infra: name verbs, groups and resources"))
}

func TestNoLog(t *testing.T) {
	_, err := Requests(filepath.Join(t.TempDir(), "audit.log"), "user")
	NewWithT(t).Expect(err).To(MatchError(os.ErrNotExist))
}
