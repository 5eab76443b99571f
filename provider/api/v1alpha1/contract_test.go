package v1alpha1_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// All reconciled kinds have conditions.
var _ = []conditions.Setter{
	&infrav1.LibvirtCluster{}, &infrav1.LibvirtMachine{}, &infrav1.LibvirtMachinePool{},
	&infrav1.LibvirtHost{}, &infrav1.LibvirtClusterIdentity{},
}

// TestFieldsOfTheContract checks the fields that Cluster API reads and writes, from the tables of rules of
// InfraCluster, InfraMachine and InfraMachinePool.
func TestFieldsOfTheContract(t *testing.T) {
	crds := readCRDs(t)
	for kind, fields := range map[string]map[string]string{
		"LibvirtCluster": {
			"spec.controlPlaneEndpoint.host": "string", "spec.controlPlaneEndpoint.port": "integer",
			"status.initialization.provisioned": "boolean", "status.failureDomains": "array", "status.conditions": "array",
		},
		"LibvirtClusterTemplate": {"spec.template.metadata.labels": "object", "spec.template.spec": "object"},
		"LibvirtMachine": {
			"spec.providerID": "string", "status.initialization.provisioned": "boolean", "status.addresses": "array",
			"status.failureDomain": "string", "status.conditions": "array",
		},
		"LibvirtMachineTemplate": {
			"spec.template.metadata.labels": "object", "spec.template.spec": "object", "status.capacity": "object",
			"status.nodeInfo.architecture": "string", "status.nodeInfo.operatingSystem": "string",
		},
		"LibvirtMachinePool": {
			"spec.providerID": "string", "spec.providerIDList": "array", "status.initialization.provisioned": "boolean",
			"status.ready": "boolean", "status.replicas": "integer", "status.instances": "array",
			"status.infrastructureMachineKind": "string", "status.conditions": "array",
		},
		"LibvirtMachinePoolTemplate": {"spec.template.metadata.labels": "object", "spec.template.spec": "object"},
	} {
		for field, wanted := range fields {
			t.Run(kind+" "+field, func(t *testing.T) {
				g := NewWithT(t)
				schema := crds[kind].Spec.Versions[0].Schema.OpenAPIV3Schema
				g.Expect(typeOf(schema, strings.Split(field, "."))).To(Equal(wanted))
			})
		}
	}
}

func typeOf(schema *apiextensionsv1.JSONSchemaProps, path []string) string {
	for _, name := range path {
		property, ok := schema.Properties[name]
		if !ok {
			return "none: there is no " + name
		}
		schema = &property
	}
	return schema.Type
}

func TestSchemeKnowsEveryKind(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	for kind := range readCRDs(t) {
		g.Expect(scheme.Recognizes(infrav1.GroupVersion.WithKind(kind))).To(BeTrue(), kind)
		g.Expect(scheme.Recognizes(infrav1.GroupVersion.WithKind(kind+"List"))).To(BeTrue(), kind)
	}
}
