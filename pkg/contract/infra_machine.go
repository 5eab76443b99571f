package contract

import "slices"

// infraMachine are the rules of the InfraMachine page.
var infraMachine = slices.Concat(allResources(InfraMachine, "infra-machine"), []Rule{
	{
		ID: "infra-machine-provider-id", Resource: InfraMachine, Name: "InfraMachine: provider ID", Mandatory: true,
		Title:   "The InfraMachine has the ID by which its node is found",
		Fix:     "add spec.providerID as an optional string",
		verdict: machineProviderID,
	},
	{
		ID: "infra-machine-failure-domain", Resource: InfraMachine, Name: "InfraMachine: failure domain",
		Title:   "The InfraMachine's failure domain is one that Cluster API can read",
		Fix:     "make the field a string",
		verdict: failureDomain,
	},
	{
		ID: "infra-machine-addresses", Resource: InfraMachine, Name: "InfraMachine: addresses",
		Title:   "The InfraMachine's addresses are ones that Cluster API can read",
		Fix:     "make status.addresses a list of objects with type and address (in Go, []clusterv1.MachineAddress)",
		verdict: fieldIs(shape{kind: typeList, items: &address}, "status", "addresses"),
	},
	{
		ID: "infra-machine-initialization-completed", Resource: InfraMachine, Name: "InfraMachine: initialization completed", Mandatory: true,
		Title:   "The InfraMachine can say that its infrastructure is provisioned",
		Fix:     "add status.initialization.provisioned as a boolean",
		verdict: initialized("provisioned", "ready"),
	},
	{
		ID: "infra-machine-conditions", Resource: InfraMachine, Name: "InfraMachine: conditions",
		Title:   "The InfraMachine's conditions are ones that Cluster API can read",
		Fix:     "make status.conditions a list of objects with type and status (in Go, []metav1.Condition)",
		verdict: conditions,
	},
	{
		ID: "infra-machine-terminal-failures", Resource: InfraMachine, Name: "InfraMachine: terminal failures",
		Title:   "The InfraMachine does not tell of terminal failures in fields that are going away",
		Fix:     "make status.failureReason and status.failureMessage strings",
		verdict: terminalFailures,
	},
	{ID: "infra-machine-in-place-changes", Resource: InfraMachine, Name: "InfraMachine: support for in-place changes", Hidden: hiddenInPlace},
	{
		ID: "infra-machine-template", Resource: InfraMachine, Name: "InfraMachineTemplate, InfraMachineTemplateList resource definition", Mandatory: true,
		Title:   "The InfraMachine has a template, with the names and the fields that Cluster API reads",
		Fix:     "define the template with spec.template.spec, which holds the spec of the kind",
		verdict: template,
	},
	{
		ID: "infra-machine-template-dry-run", Resource: InfraMachine, Name: "InfraMachineTemplate: support for SSA dry run", Note: mandatoryForClusterClass,
		Hidden: hiddenDryRun,
	},
	{ID: "infra-machine-multi-tenancy", Resource: InfraMachine, Name: "Multi tenancy", Note: mandatoryForClusterctl, Hidden: hiddenInstances},
	{ID: "infra-machine-clusterctl-support", Resource: InfraMachine, Name: "Clusterctl support", Note: mandatoryForClusterctl, Hidden: hiddenClusterctl},
	{ID: "infra-machine-pausing", Resource: InfraMachine, Name: "InfraMachine: pausing", Hidden: hiddenPausing},
	{
		ID: "infra-machine-template-autoscaling", Resource: InfraMachine, Name: "InfraMachineTemplate: support cluster autoscaling from zero",
		Title:   "The InfraMachineTemplate's capacity is one that the cluster autoscaler can read",
		Fix:     "make status.capacity a map of quantities (in Go, corev1.ResourceList) and status.nodeInfo an object with architecture and operatingSystem",
		verdict: autoscaling,
	},
})

// machineProviderID is written by the machine's controller. Cluster API makes InfraMachines from
// templates only: a kind that has none may require the field.
func machineProviderID(i *Implementation) Verdict {
	switch {
	case i.isPoolMachine():
		return Verdict{State: NotApplicable, Detail: "the machines of a pool are made by the pool's controller, with their provider IDs"}
	case i.Template == nil:
		return i.holds(text(512), "spec", "providerID")
	}
	return writtenLater(text(512), "spec", "providerID")(i)
}

// address is one of a machine's addresses.
var address = object(must("type", anyText), must("address", anyText))

// failureDomain is in the status, and was in the spec under the v1beta1 contract.
func failureDomain(i *Implementation) Verdict {
	if i.old {
		return i.holds(anyText, "spec", "failureDomain")
	}
	return i.holds(text(256), "status", "failureDomain")
}

// autoscaling is about two fields of the template's status.
func autoscaling(i *Implementation) Verdict {
	if i.Template == nil {
		return Verdict{State: NotApplicable, Detail: "there is no template"}
	}
	_, index := i.Template.contractVersion()
	status := i.Template.root(index).field("status")
	capacity, nodeInfo := status.field("capacity"), status.field("nodeInfo")
	if !capacity.there() && !nodeInfo.there() {
		return Verdict{State: Missing, Detail: "status.capacity of " + i.Template.kind()}
	}
	var problems []Problem
	if capacity.there() {
		quantity := shape{kind: typeQuantity}
		problems = append(problems, shape{kind: typeMap, items: &quantity}.compare(capacity)...)
	}
	if nodeInfo.there() {
		problems = append(problems, object(may("architecture", anyText), may("operatingSystem", anyText)).compare(nodeInfo)...)
	}
	v := verdictOf(problems)
	v.Detail = "status of " + i.Template.kind()
	return v
}
