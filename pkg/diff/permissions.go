package diff

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// PermissionChange is the change of a role's permissions.
type PermissionChange struct {
	Role           manifest.Object
	Added, Removed []Permission
}

// Permission is the set of verbs for a resource.
type Permission struct {
	// Resource is a resource with its group (libvirthosts.infrastructure.cluster.x-k8s.io), with its name if the rule
	// has one (leases.coordination.k8s.io/lock), or a path (/metrics).
	Resource string
	Verbs    []string
}

// isRole reports whether an object is a role.
func isRole(o unstructured.Unstructured) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == "rbac.authorization.k8s.io" && (gvk.Kind == "Role" || gvk.Kind == "ClusterRole")
}

// Permissions returns the roles with added or removed permissions, including new and removed roles.
func Permissions(before, after []*manifest.Document) []PermissionChange {
	old, now := byKey(roles(before)), byKey(roles(after))
	var changes []PermissionChange
	for key := range union(old, now) {
		had, has := grants(old[key]), grants(now[key])
		c := PermissionChange{Role: cmp.Or(old[key], now[key]).Place().Object, Added: notIn(has, had), Removed: notIn(had, has)}
		if len(c.Added)+len(c.Removed) > 0 {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b PermissionChange) int { return cmp.Compare(a.Role.String(), b.Role.String()) })
	return changes
}

func roles(documents []*manifest.Document) []*manifest.Document {
	var all []*manifest.Document
	for _, d := range documents {
		if isRole(d.Object) {
			all = append(all, d)
		}
	}
	return all
}

// grants returns the verbs that a role allows, by resource.
func grants(role *manifest.Document) map[string]sets.Set[string] {
	all := map[string]sets.Set[string]{}
	if role == nil {
		return all
	}
	for _, rule := range manifest.Maps(role.Object.Object, "rules") {
		for _, resource := range resources(rule) {
			if all[resource] == nil {
				all[resource] = sets.New[string]()
			}
			all[resource].Insert(manifest.Texts(rule, "verbs")...)
		}
	}
	return all
}

// resources names the resources of a rule.
func resources(rule map[string]any) []string {
	names := manifest.Texts(rule, "resourceNames")
	var all []string
	for _, group := range manifest.Texts(rule, "apiGroups") {
		for _, resource := range manifest.Texts(rule, "resources") {
			if group != "" {
				resource += "." + group
			}
			for _, name := range names {
				all = append(all, resource+"/"+name)
			}
			if len(names) == 0 {
				all = append(all, resource)
			}
		}
	}
	return append(all, manifest.Texts(rule, "nonResourceURLs")...)
}

// notIn returns the verbs of one set of grants that another does not have.
func notIn(grants, other map[string]sets.Set[string]) []Permission {
	var left []Permission
	for _, resource := range slices.Sorted(maps.Keys(grants)) {
		if verbs := grants[resource].Difference(other[resource]); len(verbs) > 0 {
			left = append(left, Permission{resource, sets.List(verbs)})
		}
	}
	return left
}
