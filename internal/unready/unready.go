// Package unready waits for something with a limit, says so, and shows which objects aren't ready and why.
package unready

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namesShown is how many objects of a group are named.
const namesShown = 3

// showTimeout is how long it may take to find out which objects aren't ready.
const showTimeout = 30 * time.Second

// Waiter waits.
type Waiter struct {
	// Out is where it says what it waits for.
	Out io.Writer
	// Limit is how long it waits, and Every how often it says what it still waits for.
	Limit, Every time.Duration
	// Show, if not nil, returns what to show of what isn't ready, whenever it says that it waits, and at the limit.
	Show func(ctx context.Context) string
}

// For waits until a function returns, and returns its error. At the limit the function's context ends, and For returns
// an error that says what it waited for, even if the function goes on.
func (w Waiter) For(ctx context.Context, what string, wait func(ctx context.Context) error) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	started := time.Now()
	limit := time.NewTimer(w.Limit)
	defer limit.Stop()
	again := time.NewTicker(w.Every)
	defer again.Stop()
	ended := make(chan error, 1)
	go func() { ended <- wait(waiting) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
			fmt.Fprintf(w.Out, "waiting for %s since %s\n%s", what, time.Since(started).Round(time.Second), w.show(ctx))
		case <-limit.C:
			cancel()
			return errors.New(strings.TrimSpace(fmt.Sprintf("gave up waiting for %s after %s\n%s", what, w.Limit, w.show(ctx))))
		}
	}
}

func (w Waiter) show(ctx context.Context) string {
	if w.Show == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	return w.Show(ctx)
}

// Until waits until all objects of a kind are ready, of which there are a number at least.
func Until(ctx context.Context, c client.Reader, least int, kind schema.GroupVersionKind) error {
	for {
		objects, err := list(ctx, c, kind)
		unready := func(object unstructured.Unstructured) bool { return reasonOf(&object) != "" }
		if err != nil || len(objects) >= least && !slices.ContainsFunc(objects, unready) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

func list(ctx context.Context, c client.Reader, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	return all.Items, nil
}

// List describes the objects of some kinds. What can't be listed is described by its error.
func List(ctx context.Context, c client.Reader, kinds ...schema.GroupVersionKind) string {
	var out strings.Builder
	for _, kind := range kinds {
		objects, err := list(ctx, c, kind)
		if err != nil {
			fmt.Fprintf(&out, "  %v\n", err)
			continue
		}
		out.WriteString(Describe(kind.Kind, objects))
	}
	return out.String()
}

// Describe writes a line for those objects of a kind that are ready, and one for each group of those that aren't: how
// many they are, their condition with its reason and message, and the names of the first few. Objects are of one group
// when their conditions differ in numbers and UUIDs only.
func Describe(kind string, objects []unstructured.Unstructured) string {
	type group struct {
		why   string
		names []string
	}
	groups, ready := map[string]*group{}, 0
	for _, object := range objects {
		why := reasonOf(&object)
		if why == "" {
			ready++
			continue
		}
		key := numbers.ReplaceAllString(strings.ReplaceAll(why, object.GetName(), "NAME"), "N")
		if groups[key] == nil {
			groups[key] = &group{why: why}
		}
		name := object.GetName()
		if object.GetNamespace() != "" {
			name = object.GetNamespace() + "/" + name
		}
		groups[key].names = append(groups[key].names, name)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "  %s: %d of %d ready\n", kind, ready, len(objects))
	all := make([]*group, 0, len(groups))
	for _, g := range groups {
		slices.Sort(g.names)
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int {
		return cmp.Or(cmp.Compare(len(b.names), len(a.names)), cmp.Compare(a.names[0], b.names[0]))
	})
	for _, g := range all {
		fmt.Fprintf(&out, "  %s: %d not ready: %s", kind, len(g.names), strings.Join(g.names[:min(namesShown, len(g.names))], ", "))
		if more := len(g.names) - namesShown; more > 0 {
			fmt.Fprintf(&out, " and %d more", more)
		}
		fmt.Fprintf(&out, ": %s\n", g.why)
	}
	return out.String()
}

// numbers are UUIDs, addresses, numbers and names of volumes by which messages of the same reason differ.
var numbers = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f.:-]*`)

// reasonOf says why an object isn't ready, or "" when it is.
func reasonOf(object *unstructured.Unstructured) string {
	raw, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, wanted := range []string{"Ready", "Available"} {
		for _, each := range raw {
			condition, _ := each.(map[string]any)
			if condition["type"] != wanted {
				continue
			}
			if condition["status"] == string(metav1.ConditionTrue) {
				return ""
			}
			message, _ := condition["message"].(string)
			return strings.TrimSuffix(fmt.Sprintf("%s is %v, %v: %s", wanted, condition["status"], condition["reason"], strings.Join(strings.Fields(message), " ")), ": ")
		}
	}
	return "it has no condition Ready or Available"
}
