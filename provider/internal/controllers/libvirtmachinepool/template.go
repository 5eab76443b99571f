package libvirtmachinepool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// desiredMachine is the LibvirtMachine of some name that the pool makes now.
func (s *scope) desiredMachine(name, failureDomain string) *infrav1.LibvirtMachine {
	infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.infra.Namespace, Name: name}}
	s.setMetadata(infra)
	infra.Annotations[infrav1.MadeFromAnnotation] = s.madeFrom()
	if failureDomain != "" {
		infra.Annotations[infrav1.FailureDomainAnnotation] = failureDomain
	}
	s.infra.Spec.Template.Spec.DeepCopyInto(&infra.Spec)
	return infra
}

// setMetadata gives a machine of the pool its labels, annotations and owner, and leaves it others that
// it has.
//
// The owner isn't its controller: that is the Machine, which Cluster API makes afterwards, and it
// wouldn't take a LibvirtMachine that has another one.
func (s *scope) setMetadata(infra *infrav1.LibvirtMachine) {
	template := s.infra.Spec.Template.ObjectMeta
	infra.Labels, infra.Annotations = merged(infra.Labels, template.Labels), merged(infra.Annotations, template.Annotations)
	infra.Labels[clusterv1.ClusterNameLabel] = s.owner.Spec.ClusterName
	infra.Labels[clusterv1.MachinePoolNameLabel] = format.MustFormatValue(s.owner.Name)
	infra.Labels[infrav1.PoolLabel] = format.MustFormatValue(s.infra.Name)
	if value, filtered := s.infra.Labels[clusterv1.WatchLabel]; filtered {
		infra.Labels[clusterv1.WatchLabel] = value
	}
	reference := metav1.OwnerReference{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachinePool", Name: s.infra.Name, UID: s.infra.UID}
	for i, owner := range infra.OwnerReferences {
		if isKind(owner.APIVersion, owner.Kind, infrav1.GroupVersion.Group, reference.Kind) && owner.Name == reference.Name {
			infra.OwnerReferences[i] = reference
			return
		}
	}
	infra.OwnerReferences = append(infra.OwnerReferences, reference)
}

func merged(into, from map[string]string) map[string]string {
	all := make(map[string]string, len(into)+len(from))
	maps.Copy(all, into)
	maps.Copy(all, from)
	return all
}

// madeFrom is what MadeFromAnnotation has on a machine that is made now: a hash of the template's spec,
// and one of what the MachinePool says of the node's software. Labels and annotations aren't part of it:
// they are changed in place.
func (s *scope) madeFrom() string {
	if s.madeFromNow == "" {
		template := s.owner.Spec.Template.Spec
		s.madeFromNow = hash(s.infra.Spec.Template.Spec) + "-" + hash([]string{template.Version, ptr.Deref(template.Bootstrap.DataSecretName, "")})
	}
	return s.madeFromNow
}

func hash(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("%T can't be written as JSON: %v", of, err)) // it was read from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// isUpToDate reports whether a machine is what the pool would make now. One that was made from this template is, also
// when it was changed in place since. One that has the spec of this template is too, whatever its hash: a newer
// version of this provider may have fields with defaults that the hash is older than.
func (s *scope) isUpToDate(infra *infrav1.LibvirtMachine) bool {
	madeFrom := infra.Annotations[infrav1.MadeFromAnnotation]
	if madeFrom == s.madeFrom() {
		return true
	}
	_, software, _ := strings.Cut(madeFrom, "-")
	if _, softwareNow, _ := strings.Cut(s.madeFrom(), "-"); software != softwareNow {
		return false
	}
	spec := infra.Spec.DeepCopy()
	spec.ProviderID, spec.HostName = "", ""
	return equality.Semantic.DeepEqual(spec, &s.infra.Spec.Template.Spec)
}
