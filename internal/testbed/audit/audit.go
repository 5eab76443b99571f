// Package audit compares the RBAC rules of a service account with its requests in the API server's audit log.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// forbidden is the decision in an event of a request that RBAC refused.
const (
	decision  = "authorization.k8s.io/decision"
	forbidden = "forbid"
)

// Request is a request of an account to the API server.
type Request struct {
	// Verb, Group, Resource, Namespace and Name are those of RBAC. Resource includes a subresource after a slash.
	Verb, Group, Resource, Namespace, Name string
	// Forbidden says that RBAC refused the request.
	Forbidden bool
}

func (r Request) String() string {
	text := Grant{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Namespace: r.Namespace}.String()
	if r.Name != "" {
		text += " named " + r.Name
	}
	return text
}

// Grant allows an account one verb on one resource.
type Grant struct {
	// Verb, Group and Resource are those of RBAC. Resource includes a subresource after a slash.
	Verb, Group, Resource string
	// Namespace of the grant, or empty for all.
	Namespace string
	// Name of the only object of the grant, or empty for all.
	Name string
}

// String returns the grant as VERB RESOURCE.GROUP, with its namespace if any.
func (g Grant) String() string {
	resource, subresource, has := strings.Cut(g.Resource, "/")
	if g.Group != "" {
		resource += "." + g.Group
	}
	if has {
		resource += "/" + subresource
	}
	text := g.Verb + " " + resource
	if g.Namespace != "" {
		text += " in " + g.Namespace
	}
	return text
}

func (g Grant) allows(r Request) bool {
	return g.Verb == r.Verb && g.Group == r.Group && g.Resource == r.Resource &&
		(g.Namespace == "" || g.Namespace == r.Namespace) && (g.Name == "" || g.Name == r.Name)
}

// Account is the user name of a service account.
func Account(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// Requests reads the distinct requests of a user for resources from the audit log at path and its rotated files,
// including requests that the API server refused.
func Requests(path, user string) ([]Request, error) {
	extension := filepath.Ext(path)
	files, err := filepath.Glob(strings.TrimSuffix(path, extension) + "*" + extension)
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("finding the audit log %s: %w", path, cmp.Or(err, os.ErrNotExist))
	}
	requests := map[Request]bool{}
	for _, name := range files {
		if err := readRequests(name, user, requests); err != nil {
			return nil, fmt.Errorf("reading the audit log %s: %w", name, err)
		}
	}
	return sorted(requests), nil
}

func readRequests(name, user string, requests map[Request]bool) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for decoder := json.NewDecoder(file); ; {
		var event auditv1.Event
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the last line may be incomplete
			return nil
		}
		if err != nil {
			return err
		}
		if object := event.ObjectRef; event.User.Username == user && object != nil {
			request := Request{Verb: event.Verb, Group: object.APIGroup, Resource: object.Resource, Namespace: object.Namespace,
				Name: object.Name, Forbidden: event.Annotations[decision] == forbidden}
			if object.Subresource != "" {
				request.Resource += "/" + object.Subresource
			}
			requests[request] = true
		}
	}
}

// Grants lists the grants of a service account by the roles that are bound to it, without those of all accounts.
// Wildcards are an error, because their grants can't be listed.
func Grants(ctx context.Context, c client.Reader, namespace, name string) ([]Grant, error) {
	var everywhere rbacv1.ClusterRoleBindingList
	var somewhere rbacv1.RoleBindingList
	if err := errors.Join(c.List(ctx, &everywhere), c.List(ctx, &somewhere)); err != nil {
		return nil, fmt.Errorf("listing the bindings of roles: %w", err)
	}
	grants := map[Grant]bool{}
	add := func(role rbacv1.RoleRef, subjects []rbacv1.Subject, in string) error {
		if !slices.Contains(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}) {
			return nil
		}
		rules, err := rulesOf(ctx, c, role, in)
		if err != nil {
			return err
		}
		for _, rule := range rules {
			for _, grant := range expand(rule, in) {
				if strings.Contains(grant.String(), "*") {
					return fmt.Errorf("%s %s grants %s: name verbs, groups and resources", role.Kind, role.Name, grant)
				}
				grants[grant] = true
			}
		}
		return nil
	}
	for _, binding := range everywhere.Items {
		if err := add(binding.RoleRef, binding.Subjects, ""); err != nil {
			return nil, err
		}
	}
	for _, binding := range somewhere.Items {
		if err := add(binding.RoleRef, binding.Subjects, binding.Namespace); err != nil {
			return nil, err
		}
	}
	return sorted(grants), nil
}

func rulesOf(ctx context.Context, c client.Reader, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "ClusterRole" {
		role := &rbacv1.ClusterRole{}
		err := c.Get(ctx, client.ObjectKey{Name: ref.Name}, role)
		return role.Rules, err
	}
	role := &rbacv1.Role{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, role)
	return role.Rules, err
}

// expand lists the grants of a rule. Rules for URLs have none.
func expand(rule rbacv1.PolicyRule, namespace string) []Grant {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var grants []Grant
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					grants = append(grants, Grant{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name})
				}
			}
		}
	}
	return grants
}

// Compare returns the requests that no grant allows or that were refused, and the grants that no request needed. If
// several grants allow a request, it needs the first one; grants for all namespaces come first, as in the API server.
// Grants of get and list for a watched resource count as needed: they reveal no more, and caches list if an API server
// doesn't stream.
func Compare(grants []Grant, requests []Request) (refused []Request, unused []Grant) {
	grants = slices.Clone(grants)
	slices.SortStableFunc(grants, func(a, b Grant) int { return cmp.Compare(a.Namespace, b.Namespace) })
	used := map[Grant]bool{}
	for _, request := range requests {
		at := slices.IndexFunc(grants, func(grant Grant) bool { return grant.allows(request) })
		if at < 0 || request.Forbidden {
			refused = append(refused, request)
		}
		if at >= 0 {
			used[grants[at]] = true
		}
	}
	return refused, slices.DeleteFunc(grants, func(grant Grant) bool {
		watch := grant
		watch.Verb = "watch"
		return used[grant] || (grant.Verb == "get" || grant.Verb == "list") && used[watch]
	})
}

// sorted returns the keys of a map, ordered by their texts.
func sorted[K interface {
	comparable
	fmt.Stringer
}](set map[K]bool) []K {
	keys := make([]K, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b K) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}
