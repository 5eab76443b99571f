package unready

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func object(name string, conditions ...any) unstructured.Unstructured {
	o := unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "namespace": "default"}}}
	if conditions != nil {
		o.Object["status"] = map[string]any{"conditions": conditions}
	}
	return o
}

func condition(kind, status, reason, message string) any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
}

func TestDescribe(t *testing.T) {
	paused := condition("Paused", "False", "NotPaused", "")
	objects := []unstructured.Unstructured{
		object("done", paused, condition("Ready", "True", "Ready", "")),
		object("deployment", condition("Available", "True", "MinimumReplicasAvailable", "")),
		object("new"),
		object("other", condition("Available", "False", "MinimumReplicasUnavailable", "")),
	}
	for i := range 5 {
		name := fmt.Sprintf("machine-%d", 5-i)
		objects = append(objects, object(name, paused,
			condition("Ready", "False", "NotReady", fmt.Sprintf("* %s:\n  starting the domain 5c4f1ab%d-7c5e-4a55-8f0e-2a3c6a1f0b11: no answer in time", name, i))))
	}
	NewWithT(t).Expect(Describe("LibvirtMachine", objects)).To(Equal(`  LibvirtMachine: 2 of 9 ready
  LibvirtMachine: 5 not ready: default/machine-1, default/machine-2, default/machine-3 and 2 more: Ready is False, NotReady: * machine-5: starting the domain 5c4f1ab0-7c5e-4a55-8f0e-2a3c6a1f0b11: no answer in time
  LibvirtMachine: 1 not ready: default/new: it has no condition Ready or Available
  LibvirtMachine: 1 not ready: default/other: Available is False, MinimumReplicasUnavailable
`))
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Host"}
		hosts := func(conditions ...any) (all []client.Object) {
			for i, each := range conditions {
				o := object(fmt.Sprintf("host-%d", i), each)
				o.SetGroupVersionKind(kind)
				all = append(all, &o)
			}
			return all
		}
		ready, unready := condition("Ready", "True", "Ready", ""), condition("Ready", "False", "NotReady", "")
		for _, tc := range []struct {
			hosts []client.Object
			ready bool
		}{{}, {hosts: hosts(ready)}, {hosts: hosts(ready, ready, unready)}, {hosts: hosts(ready, ready), ready: true}, {hosts: hosts(ready, ready, ready), ready: true}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := Until(ctx, fake.NewClientBuilder().WithObjects(tc.hosts...).Build(), 2, kind)
			if tc.ready {
				g.Expect(err).ToNot(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(context.DeadlineExceeded))
			}
			cancel()
		}
	})
}

func TestWaiter(t *testing.T) {
	failed := errors.New("it failed")
	for name, tc := range map[string]struct {
		wait func(ctx context.Context) error
		// err is the error of For, and progress its output before.
		err, progress string
		took          time.Duration
	}{
		"it ends":  {wait: func(context.Context) error { return nil }},
		"it fails": {wait: func(context.Context) error { return failed }, err: "it failed"},
		"it takes long": {wait: func(context.Context) error { time.Sleep(25 * time.Second); return nil }, took: 25 * time.Second,
			progress: "waiting for hosts since 10s\nhost-1 is missing\nwaiting for hosts since 20s\nhost-1 is missing\n"},
		"it waits for ever": {wait: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, took: 35 * time.Second,
			progress: "waiting for hosts since 10s\nhost-1 is missing\nwaiting for hosts since 20s\nhost-1 is missing\nwaiting for hosts since 30s\nhost-1 is missing\n", err: "gave up waiting for hosts after 35s\nhost-1 is missing"},
		"it ignores its context": {wait: func(context.Context) error { time.Sleep(time.Hour); return nil }, took: 35 * time.Second,
			progress: "waiting for hosts since 10s\nhost-1 is missing\nwaiting for hosts since 20s\nhost-1 is missing\nwaiting for hosts since 30s\nhost-1 is missing\n", err: "gave up waiting for hosts after 35s\nhost-1 is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				var progress strings.Builder
				w := Waiter{Out: &progress, Limit: 35 * time.Second, Every: 10 * time.Second, Show: func(context.Context) string { return "host-1 is missing\n" }}
				started := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := w.For(ctx, "hosts", tc.wait)
				g.Expect(time.Since(started)).To(Equal(tc.took))
				if tc.err == "" {
					g.Expect(err).ToNot(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(tc.err))
				}
				g.Expect(progress.String()).To(Equal(tc.progress))
				time.Sleep(2 * time.Hour) // until the function that ignores its context has returned
			})
		})
	}
}
