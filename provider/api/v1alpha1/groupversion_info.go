package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of the kinds in this package. Cluster API's own roles cover the group, so
	// that no aggregated role is needed.
	GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme

	// objectTypes are the kinds of this package.
	objectTypes = []runtime.Object{
		&LibvirtCluster{}, &LibvirtClusterList{},
		&LibvirtClusterIdentity{}, &LibvirtClusterIdentityList{},
		&LibvirtClusterTemplate{}, &LibvirtClusterTemplateList{},
		&LibvirtHost{}, &LibvirtHostList{},
		&LibvirtMachine{}, &LibvirtMachineList{},
		&LibvirtMachinePool{}, &LibvirtMachinePoolList{},
		&LibvirtMachinePoolTemplate{}, &LibvirtMachinePoolTemplateList{},
		&LibvirtMachineTemplate{}, &LibvirtMachineTemplateList{},
	}
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, objectTypes...)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
