package libvirtmachinepool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// keepMetadata brings the labels, annotations and owner of the machines up to date, in place.
func (s *scope) keepMetadata(ctx context.Context, seen *members) error {
	for _, m := range seen.all {
		if m.isDeleting() {
			continue
		}
		after := m.infra.DeepCopy()
		s.setMetadata(after)
		if !m.outdated {
			after.Annotations[infrav1.MadeFromAnnotation] = s.madeFrom()
		}
		if maps.Equal(m.infra.Labels, after.Labels) && maps.Equal(m.infra.Annotations, after.Annotations) &&
			equality.Semantic.DeepEqual(m.infra.OwnerReferences, after.OwnerReferences) {
			continue
		}
		err := s.Client.Patch(ctx, after, outcome.Over(m.infra))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing labels and annotations of LibvirtMachine %s: %w", after.Name, err)
		}
	}
	return nil
}

// writeSpec writes the provider IDs if they have changed. The status comes after it, over what this write has
// made: in a pool where something happens all the time, it would never be written otherwise.
//
// A machine that is being deleted keeps its place in the list until it is gone, and is drained so long:
// Cluster API deletes nodes that aren't in the list.
func (s *scope) writeSpec(ctx context.Context, seen *members) error {
	before := s.infra.DeepCopy()
	if s.infra.Spec.ProviderID == "" {
		s.infra.Spec.ProviderID = infrav1.ProviderIDPrefix + s.infra.Namespace + "/" + s.infra.Name
	}
	ids := []string{}
	for _, m := range seen.all {
		if isProvisioned(m.infra) {
			ids = append(ids, m.infra.Spec.ProviderID)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if s.infra.Spec.ProviderID == before.Spec.ProviderID && slices.Equal(ids, before.Spec.ProviderIDList) {
		return nil
	}
	s.infra.Spec.ProviderIDList = ids
	return outcome.Wrap(s.Client.Patch(ctx, s.infra, outcome.Over(before)), "writing spec.providerIDList")
}

// isProvisioned reports whether there is, or was, a domain that a machine's provider ID speaks of.
func isProvisioned(infra *infrav1.LibvirtMachine) bool {
	return infra.Spec.ProviderID != "" && ptr.Deref(infra.Status.Initialization.Provisioned, false)
}

// writeStatus writes the status after it was changed, if it has.
func (s *scope) writeStatus(ctx context.Context, change func()) error {
	before := s.infra.DeepCopy()
	change()
	written, err := outcome.WriteStatus(ctx, s.Client, before, s.infra)
	if written {
		s.announce(before)
	}
	return outcome.Wrap(err, "writing the status")
}
