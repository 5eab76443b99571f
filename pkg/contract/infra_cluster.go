package contract

import "slices"

// infraCluster are the rules of the InfraCluster page.
var infraCluster = slices.Concat(allResources(InfraCluster, "infra-cluster"), []Rule{
	{
		ID: "infra-cluster-control-plane-endpoint", Resource: InfraCluster, Name: "InfraCluster: control plane endpoint", Note: mandatoryForEndpoint,
		Title:   "The InfraCluster's control plane endpoint is one that Cluster API can read",
		Fix:     "make spec.controlPlaneEndpoint an object with host, a string, and port, an integer",
		verdict: fieldIs(endpoint, "spec", "controlPlaneEndpoint"),
	},
	{
		ID: "infra-cluster-failure-domains", Resource: InfraCluster, Name: "InfraCluster: failure domains",
		Title:   "The InfraCluster's failure domains are as its contract version has them",
		Fix:     "make status.failureDomains a list of objects with name, controlPlane and attributes (in Go, []clusterv1.FailureDomain)",
		verdict: failureDomains,
	},
	{
		ID: "infra-cluster-initialization-completed", Resource: InfraCluster, Name: "InfraCluster: initialization completed", Mandatory: true,
		Title:   "The InfraCluster can say that its infrastructure is provisioned",
		Fix:     "add status.initialization.provisioned as a boolean",
		verdict: initialized("provisioned", "ready"),
	},
	{
		ID: "infra-cluster-conditions", Resource: InfraCluster, Name: "InfraCluster: conditions",
		Title:   "The InfraCluster's conditions are ones that Cluster API can read",
		Fix:     "make status.conditions a list of objects with type and status (in Go, []metav1.Condition)",
		verdict: conditions,
	},
	{
		ID: "infra-cluster-terminal-failures", Resource: InfraCluster, Name: "InfraCluster: terminal failures",
		Title:   "The InfraCluster does not tell of terminal failures in fields that are going away",
		Fix:     "make status.failureReason and status.failureMessage strings",
		verdict: terminalFailures,
	},
	{
		ID: "infra-cluster-template", Resource: InfraCluster, Name: "InfraClusterTemplate, InfraClusterTemplateList resource definition", Note: mandatoryForClusterClass,
		Title:   "The InfraCluster's template has the names and the fields that Cluster API reads",
		Fix:     "define the template with spec.template.spec, which holds the spec of the kind",
		verdict: template,
	},
	{
		ID: "infra-cluster-externally-managed", Resource: InfraCluster, Name: "Externally managed infrastructure",
		Hidden: "what the controller does with objects that another system manages",
	},
	{ID: "infra-cluster-multi-tenancy", Resource: InfraCluster, Name: "Multi tenancy", Note: mandatoryForClusterctl, Hidden: hiddenInstances},
	{ID: "infra-cluster-clusterctl-support", Resource: InfraCluster, Name: "Clusterctl support", Note: mandatoryForClusterctl, Hidden: hiddenClusterctl},
	{ID: "infra-cluster-pausing", Resource: InfraCluster, Name: "InfraCluster: pausing", Hidden: hiddenPausing},
})

// failureDomains is a list by name, and was a map by name under the v1beta1 contract.
func failureDomains(i *Implementation) Verdict {
	attributes := may("attributes", shape{kind: typeMap, items: &anyText})
	if i.old {
		domain := object(may("controlPlane", boolean), attributes)
		v := i.holds(shape{kind: typeMap, items: &domain}, "status", "failureDomains")
		for k := range v.Problems {
			v.Problems[k].Fix = "make status.failureDomains a map of objects with controlPlane and attributes, as the v1beta1 contract has it, or declare v1beta2"
		}
		return v
	}
	domain := object(must("name", text(256)), may("controlPlane", boolean), attributes)
	return i.holds(shape{kind: typeList, items: &domain, maxItems: 100, listType: typeMap, listKeys: []string{"name"}}, "status", "failureDomains")
}
