package contract

import "slices"

// bootstrapConfig are the rules of the BootstrapConfig page.
var bootstrapConfig = slices.Concat(allResources(BootstrapConfig, "bootstrap-config"), []Rule{
	{
		ID: "bootstrap-config-data-secret", Resource: BootstrapConfig, Name: "BootstrapConfig: data secret", Mandatory: true,
		Title:   "The BootstrapConfig names the Secret with its data",
		Fix:     "add status.dataSecretName as a string",
		verdict: fieldIs(text(253), "status", "dataSecretName"),
	},
	{
		ID: "bootstrap-config-initialization-completed", Resource: BootstrapConfig, Name: "BootstrapConfig: initialization completed", Mandatory: true,
		Title:   "The BootstrapConfig can say that its Secret is there",
		Fix:     "add status.initialization.dataSecretCreated as a boolean",
		verdict: initialized("dataSecretCreated", "ready"),
	},
	{
		ID: "bootstrap-config-conditions", Resource: BootstrapConfig, Name: "BootstrapConfig: conditions",
		Title:   "The BootstrapConfig's conditions are ones that Cluster API can read",
		Fix:     "make status.conditions a list of objects with type and status (in Go, []metav1.Condition)",
		verdict: conditions,
	},
	{
		ID: "bootstrap-config-terminal-failures", Resource: BootstrapConfig, Name: "BootstrapConfig: terminal failures",
		Title:   "The BootstrapConfig does not tell of terminal failures in fields that are going away",
		Fix:     "make status.failureReason and status.failureMessage strings",
		verdict: terminalFailures,
	},
	{ID: "bootstrap-config-in-place-changes", Resource: BootstrapConfig, Name: "BootstrapConfig: support for in-place changes", Hidden: hiddenInPlace},
	{
		ID: "bootstrap-config-template", Resource: BootstrapConfig, Name: "BootstrapConfigTemplate, BootstrapConfigTemplateList resource definition", Mandatory: true,
		Title:   "The BootstrapConfig has a template, with the names and the fields that Cluster API reads",
		Fix:     "define the template with spec.template.spec, which holds the spec of the kind",
		verdict: template,
	},
	{
		ID: "bootstrap-config-template-dry-run", Resource: BootstrapConfig, Name: "BootstrapConfigTemplate: support for SSA dry run", Note: mandatoryForClusterClass,
		Hidden: hiddenDryRun,
	},
	{
		ID: "bootstrap-config-sentinel-file", Resource: BootstrapConfig, Name: "Sentinel file",
		Hidden: "what the bootstrap data does on a machine once its node has joined",
	},
	{
		ID: "bootstrap-config-taint", Resource: BootstrapConfig, Name: "Taint Nodes at creation",
		Hidden: "what the bootstrap data tells the kubelet to register with",
	},
	{ID: "bootstrap-config-multiple-instances", Resource: BootstrapConfig, Name: "Support for running multiple instances", Note: mandatoryForClusterctl, Hidden: hiddenInstances},
	{ID: "bootstrap-config-clusterctl-support", Resource: BootstrapConfig, Name: "Clusterctl support", Note: mandatoryForClusterctl, Hidden: hiddenClusterctl},
	{ID: "bootstrap-config-pausing", Resource: BootstrapConfig, Name: "BootstrapConfig: pausing", Hidden: hiddenPausing},
})
