package test

import (
	"context"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// imagesCollected: images are deleted from hosts after they were unused for the time in the manager's flag.
func imagesCollected(ctx context.Context, g *WithT, w *world) {
	images := func(g Gomega) (found []string) {
		for name := range w.hosts {
			for _, volume := range w.volumesOf(g, name, "caplv-image") {
				found = append(found, name+": "+volume)
			}
		}
		return found
	}
	g.Expect(images(g)).ToNot(BeEmpty(), "they stay for a day by default")
	manager := client.ObjectKey{Namespace: "caplv-system", Name: "caplv-controller-manager"}
	patch(ctx, g, w.Client, manager, &appsv1.Deployment{}, func(o *appsv1.Deployment) {
		container := &o.Spec.Template.Spec.Containers[0]
		container.Args = append(container.Args, "--image-retention=20s")
	})
	eventually(g, func(g Gomega) { g.Expect(images(g)).To(BeEmpty()) })
}
