package contract

import "slices"

// infraMachinePool are the rules of the InfraMachinePool page.
var infraMachinePool = slices.Concat(allResources(InfraMachinePool, "infra-machine-pool"), []Rule{
	{
		ID: "infra-machine-pool-instances", Resource: InfraMachinePool, Name: "InfraMachinePool: instances",
		Title:   "The InfraMachinePool's instances are a list of objects",
		Fix:     "make status.instances a list of objects",
		verdict: fieldIs(shape{kind: typeList, items: &anything}, "status", "instances"),
	},
	{
		ID: "infra-machine-pool-machines", Resource: InfraMachinePool, Name: "MachinePoolMachines support",
		Title:   "The InfraMachinePool names the kind of its machines in a string",
		Fix:     "make status.infrastructureMachineKind a string",
		verdict: fieldIs(anyText, "status", "infrastructureMachineKind"),
	},
	{
		ID: "infra-machine-pool-provider-id", Resource: InfraMachinePool, Name: "InfraMachinePool: providerID",
		Title:   "The InfraMachinePool's own ID is an optional string",
		Fix:     "make spec.providerID an optional string",
		verdict: writtenLater(text(512), "spec", "providerID"),
	},
	{
		ID: "infra-machine-pool-provider-id-list", Resource: InfraMachinePool, Name: "InfraMachinePool: providerIDList", Mandatory: true,
		Title:   "The InfraMachinePool has the IDs by which its nodes are found",
		Fix:     "add spec.providerIDList as an optional list of strings",
		verdict: providerIDList,
	},
	{
		ID: "infra-machine-pool-initialization-completed", Resource: InfraMachinePool, Name: "InfraMachinePool: initialization completed", Mandatory: true,
		Title:   "The InfraMachinePool can say that its infrastructure is provisioned",
		Fix:     "add status.initialization.provisioned as a boolean",
		verdict: poolInitialized,
	},
	{ID: "infra-machine-pool-pausing", Resource: InfraMachinePool, Name: "InfraMachinePool: pausing", Hidden: hiddenPausing},
	{
		ID: "infra-machine-pool-conditions", Resource: InfraMachinePool, Name: "InfraMachinePool: conditions",
		Title:   "The InfraMachinePool's conditions are ones that Cluster API can read",
		Fix:     "make status.conditions a list of objects with type and status (in Go, []metav1.Condition)",
		verdict: conditions,
	},
	{
		ID: "infra-machine-pool-replicas", Resource: InfraMachinePool, Name: "InfraMachinePool: replicas", Mandatory: true,
		Title:   "The InfraMachinePool counts its machines",
		Fix:     "add status.replicas as an integer",
		verdict: fieldIs(integer, "status", "replicas"),
	},
	{
		ID: "infra-machine-pool-terminal-failures", Resource: InfraMachinePool, Name: "InfraMachinePool: terminal failures",
		Title:   "The InfraMachinePool does not tell of terminal failures in fields that are going away",
		Fix:     "make status.failureReason and status.failureMessage strings",
		verdict: terminalFailures,
	},
	{
		// The name of the list is misspelt in the table.
		ID: "infra-machine-pool-template", Resource: InfraMachinePool, Name: "InfraMachinePoolTemplate, InfraMachineTemplatePoolList resource definition", Note: mandatoryForClusterClass,
		Title:   "The InfraMachinePool's template has the names and the fields that Cluster API reads",
		Fix:     "define the template with spec.template.spec, which holds the spec of the kind",
		verdict: template,
	},
	{
		ID: "infra-machine-pool-template-dry-run", Resource: InfraMachinePool, Name: "InfraMachinePoolTemplate: support for SSA dry run", Note: mandatoryForClusterClass,
		Hidden: hiddenDryRun,
	},
	{ID: "infra-machine-pool-multi-tenancy", Resource: InfraMachinePool, Name: "Multi tenancy", Note: mandatoryForClusterctl, Hidden: hiddenInstances},
	{ID: "infra-machine-pool-clusterctl-support", Resource: InfraMachinePool, Name: "Clusterctl support", Note: mandatoryForClusterctl, Hidden: hiddenClusterctl},
})

// providerID is an item of spec.providerIDList.
var providerID = text(512)

// providerIDList is written by the pool's controller, and replaced as a whole.
var providerIDList = writtenLater(shape{kind: typeList, items: &providerID, maxItems: 10000, listType: "atomic"}, "spec", "providerIDList")

// poolInitialized is the rule about a pool that says that it is provisioned. The page asks for the same
// field as those of other resources, but the controller of MachinePools still waits for status.ready.
func poolInitialized(i *Implementation) Verdict {
	v := initialized("provisioned", "ready")(i)
	if i.CRD == nil || i.old {
		return v
	}
	ready := i.root.at("status", "ready")
	switch {
	case v.State == Missing && ready.there():
		p := v.Problems[0]
		p.Weight = Deprecated
		p.Reason = i.CRD.kind() + " has status.ready and no status.initialization.provisioned: the controller of MachinePools still waits for status.ready, and the contract asks for the other field"
		v.Problems = []Problem{p}
	case v.State == Present && !ready.there():
		p := ready.problem(Lax, i.CRD.kind()+" has no status.ready in addition to status.initialization.provisioned: the controller of MachinePools in this version of Cluster API still waits for it")
		p.Fix = "add status.ready as a boolean, and set both"
		v.Problems = []Problem{p}
	}
	return v
}
