package contract

import "slices"

// controlPlane are the rules of the ControlPlane page. What its fields have to look like is in
// control_plane_fields.go.
var controlPlane = slices.Concat(allResources(ControlPlane, "control-plane"), []Rule{
	{
		ID: "control-plane-endpoint", Resource: ControlPlane, Name: "ControlPlane: endpoint", Note: mandatoryForEndpoint,
		Title:   "The ControlPlane's endpoint is one that Cluster API can read",
		Fix:     "make spec.controlPlaneEndpoint an object with host, a string, and port, an integer",
		verdict: fieldIs(endpoint, "spec", "controlPlaneEndpoint"),
	},
	{
		ID: "control-plane-replicas", Resource: ControlPlane, Name: "ControlPlane: replicas",
		Note:    "Mandatory if control plane has a notion of number of instances.",
		Title:   "A ControlPlane with replicas has the counters and the scale subresource",
		Fix:     "add what is missing next to spec.replicas, as the contract page has it",
		verdict: replicas,
	},
	{
		ID: "control-plane-version", Resource: ControlPlane, Name: "ControlPlane: version",
		Note:    "Mandatory if control plane allows direct management of the Kubernetes version in use; Mandatory for cluster class support.",
		Title:   "A ControlPlane with a version says which versions it runs",
		Fix:     "add status.versions (in Go, []clusterv1.StatusVersion) next to spec.version, or status.version",
		verdict: kubernetesVersion,
	},
	{
		ID: "control-plane-machines", Resource: ControlPlane, Name: "ControlPlane: machines",
		Note:    "Mandatory if control plane instances are represented with a set of Cluster API Machines.",
		Title:   "A ControlPlane's machine template is as its contract version has it",
		Fix:     "give spec.machineTemplate the fields of the contract page",
		verdict: machines,
	},
	{
		ID: "control-plane-rollout-after", Resource: ControlPlane, Name: "ControlPlane: rolloutAfter",
		Title:   "A ControlPlane's scheduled rollout is where its contract version has it",
		Fix:     "add spec.rollout.after as a string (in Go, metav1.Time)",
		verdict: rolloutAfter,
	},
	{
		ID: "control-plane-initialization-completed", Resource: ControlPlane, Name: "ControlPlane: initialization completed", Mandatory: true,
		Title:   "The ControlPlane can say that it is initialized",
		Fix:     "add status.initialization.controlPlaneInitialized as a boolean",
		verdict: initialized("controlPlaneInitialized", "initialized"),
	},
	{
		ID: "control-plane-in-place-updates", Resource: ControlPlane, Name: "ControlPlane: in-place updates",
		Note:   "Only supported for control plane providers with control plane machines",
		Hidden: hiddenInPlace,
	},
	{
		ID: "control-plane-conditions", Resource: ControlPlane, Name: "ControlPlane: conditions",
		Title:   "The ControlPlane's conditions are ones that Cluster API can read",
		Fix:     "make status.conditions a list of objects with type and status (in Go, []metav1.Condition)",
		verdict: conditions,
	},
	{
		ID: "control-plane-terminal-failures", Resource: ControlPlane, Name: "ControlPlane: terminal failures",
		Title:   "The ControlPlane does not tell of terminal failures in fields that are going away",
		Fix:     "make status.failureReason and status.failureMessage strings",
		verdict: terminalFailures,
	},
	{
		ID: "control-plane-template", Resource: ControlPlane, Name: "ControlPlaneTemplate, ControlPlaneTemplateList resource definition", Note: mandatoryForClusterClass,
		Title:   "The ControlPlane's template has the names and the fields that Cluster API reads",
		Fix:     "define the template with spec.template.spec, which holds the spec of the kind",
		verdict: template,
	},
	{
		ID: "control-plane-kubeconfig", Resource: ControlPlane, Name: "Cluster kubeconfig management", Mandatory: true,
		Hidden: "the Secret with the kubeconfig that the controller makes and renews",
	},
	{
		ID: "control-plane-certificates", Resource: ControlPlane, Name: "Cluster certificate management",
		Hidden: "the Secrets with certificates that the controller makes",
	},
	{
		ID: "control-plane-machine-placement", Resource: ControlPlane, Name: "Machine placement",
		Hidden: "how the controller spreads its machines over failure domains",
	},
	{
		ID: "control-plane-metadata-propagation", Resource: ControlPlane, Name: "Metadata propagation",
		Hidden: "which labels and annotations the controller copies to its machines",
	},
	{
		ID: "control-plane-min-ready-seconds", Resource: ControlPlane, Name: "MinReadySeconds and UpToDate propagation",
		Hidden: "what the controller writes to its machines",
	},
	{ID: "control-plane-multiple-instances", Resource: ControlPlane, Name: "Support for running multiple instances", Note: mandatoryForClusterctl, Hidden: hiddenInstances},
	{ID: "control-plane-clusterctl-support", Resource: ControlPlane, Name: "Clusterctl support", Note: mandatoryForClusterctl, Hidden: hiddenClusterctl},
	{ID: "control-plane-pausing", Resource: ControlPlane, Name: "ControlPlane: pausing", Hidden: hiddenPausing},
})
