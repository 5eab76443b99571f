package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// subject is a subject of a binding of the components.
type subject struct {
	binding               *manifest.Document
	path                  []any
	kind, namespace, name string
}

// subjects returns the subjects of all role bindings.
func subjects(s *checks.Subject) []subject {
	var all []subject
	for _, d := range s.Objects("RoleBinding", "ClusterRoleBinding") {
		for i, fields := range manifest.Maps(d.Object.Object, "subjects") {
			all = append(all, subject{
				binding: d, path: []any{"subjects", i},
				kind: manifest.Text(fields, "kind"), namespace: manifest.Text(fields, "namespace"), name: manifest.Text(fields, "name"),
			})
		}
	}
	return all
}

var clusterRoleBindingSubject = checks.Check{
	ID: "cluster-role-binding-subject", Group: checks.Components, Severity: checks.Warning,
	Title:  "Bindings' subjects are in the provider's namespace",
	Source: "clusterctl provider contract, Additional notes, Components YAML transformations",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		target := installed.TargetNamespace(s)
		for _, subject := range subjects(s) {
			if target == "" || subject.namespace == "" || subject.namespace == target || hasRoleOtherwise(s, subject) {
				continue
			}
			report(checks.Finding{
				Place: subject.binding.Place(manifest.Join(subject.path, "namespace")...),
				Message: fmt.Sprintf("the subject is %s %s in namespace %s, but clusterctl changes the namespace to the provider's own: %s in %s gets the role instead of the intended subject",
					subject.kind, subject.name, subject.namespace, subject.name, target),
				Fix: fmt.Sprintf("bind the Group system:serviceaccounts:%s or the User system:serviceaccount:%s:%s, which clusterctl does not change; core Cluster API gets permissions from an aggregated ClusterRole",
					subject.namespace, subject.namespace, subject.name),
			})
		}
		return nil
	},
}

// hasRoleOtherwise reports whether the service account of a binding's subject also gets the role through a Group or a
// User, which clusterctl does not change: in the same binding, or in another one with the role.
func hasRoleOtherwise(s *checks.Subject, account subject) bool {
	names := map[string][]string{
		"Group": {"system:serviceaccounts:" + account.namespace, "system:serviceaccounts", "system:authenticated"},
		"User":  {"system:serviceaccount:" + account.namespace + ":" + account.name},
	}
	role := func(d *manifest.Document) [2]string {
		return [2]string{manifest.Text(d.Object.Object, "roleRef", "kind"), manifest.Text(d.Object.Object, "roleRef", "name")}
	}
	return slices.ContainsFunc(subjects(s), func(other subject) bool {
		isWide := other.binding.Object.GetKind() == "ClusterRoleBinding" || other.binding.Object.GetKind() == account.binding.Object.GetKind() &&
			other.binding.Object.GetNamespace() == account.binding.Object.GetNamespace()
		return isWide && role(other.binding) == role(account.binding) && slices.Contains(names[other.kind], other.name)
	})
}

var rbacSubject = checks.Check{
	ID: "rbac-subject", Group: checks.Components, Severity: checks.Warning,
	Title:  "Service accounts that bindings and pods name are in the file",
	Source: "clusterctl provider contract, Additional notes, Links to external objects",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		accounts := map[string]bool{"default": true, "": true} // every namespace has the first
		for _, d := range s.Objects("ServiceAccount") {
			accounts[d.Object.GetName()] = true
		}
		reportMissing := func(place manifest.Place, account, verb, effect string) {
			if accounts[account] || strings.Contains(account, "$") {
				return
			}
			report(checks.Finding{
				Place:   place,
				Message: fmt.Sprintf("%s ServiceAccount %s, which is not in the file: %s", verb, account, effect),
				Fix:     "add the ServiceAccount, or name the one in the file",
			})
		}
		target := installed.TargetNamespace(s)
		for _, subject := range subjects(s) {
			if subject.kind != "ServiceAccount" || (target != "" && subject.namespace != target) {
				continue
			}
			reportMissing(subject.binding.Place(manifest.Join(subject.path, "name")...), subject.name, "binds", "the binding has no effect")
		}
		for _, p := range installed.Pods(s) {
			reportMissing(p.Place(manifest.Join(p.Path, "serviceAccountName")...), manifest.Text(p.Spec, "serviceAccountName"), "names", "its pods are never created")
		}
		return nil
	},
}

// builtInRoles are the cluster roles of every cluster, in addition to those that begin with system:.
var builtInRoles = []string{"cluster-admin", "admin", "edit", "view"}

var rbacRole = checks.Check{
	ID: "rbac-role", Group: checks.Components, Severity: checks.Warning,
	Title:  "Roles that bindings name are in the file",
	Source: "clusterctl provider contract, Additional notes, Links to external objects",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		roles := map[string]bool{}
		for _, d := range s.Objects("Role", "ClusterRole") {
			roles[d.Object.GetKind()+"/"+d.Object.GetName()] = true
		}
		for _, d := range s.Objects("RoleBinding", "ClusterRoleBinding") {
			kind, name := manifest.Text(d.Object.Object, "roleRef", "kind"), manifest.Text(d.Object.Object, "roleRef", "name")
			builtIn := kind == "ClusterRole" && (slices.Contains(builtInRoles, name) || strings.HasPrefix(name, "system:"))
			if builtIn || roles[kind+"/"+name] || strings.Contains(name, "$") {
				continue
			}
			report(checks.Finding{
				Place:   d.Place("roleRef", "name"),
				Message: fmt.Sprintf("it grants %s %s, which is not in the file: its subjects get no permissions", kind, name),
				Fix:     "add the role, or name the one in the file",
			})
		}
		return nil
	},
}

// leaderElectionFlags enable a manager's leader election: controller-runtime's scaffolds have used both.
var leaderElectionFlags = []string{"leader-elect", "enable-leader-election"}

var leaderElectionPermission = checks.Check{
	ID: "leader-election-permission", Group: checks.Components, Severity: checks.Warning,
	Title:  "A manager with leader election has access to leases",
	Source: "Kubernetes, Leases, Leader election",
	Run: checks.Each(installed.Containers, func(s *checks.Subject, c installed.Container, report checks.Report) {
		may := func(verb string) bool {
			return slices.ContainsFunc(installed.Rules(s, "Role", "ClusterRole"), func(r installed.Rule) bool { return r.Grants("coordination.k8s.io", "leases", verb) })
		}
		for _, flag := range leaderElectionFlags {
			value, i, on := flagValue(c, flag)
			if !on || value == "false" || !c.IsManager() || bindsForeignRole(s) {
				continue
			}
			for _, verb := range []string{"create", "update"} {
				if !may(verb) {
					report(checks.Finding{
						Place:   c.Place("args", i),
						Message: fmt.Sprintf("leader election is enabled, but no role allows to %s leases in coordination.k8s.io: the manager never starts its controllers", verb),
						Fix:     "grant get, create, update and patch on leases in a Role, and bind it to the manager's ServiceAccount",
					})
					break
				}
			}
		}
	}),
}

// bindsForeignRole reports whether a binding grants a role that is not in the file.
func bindsForeignRole(s *checks.Subject) bool {
	return slices.ContainsFunc(s.Objects("RoleBinding", "ClusterRoleBinding"), func(d *manifest.Document) bool {
		name := manifest.Text(d.Object.Object, "roleRef", "name")
		return s.Object("Role", name) == nil && s.Object("ClusterRole", name) == nil
	})
}
