package contract

import (
	"slices"
	"strings"
)

// page is a contract page with its rules.
type page struct {
	resource Resource
	// name is the page's file name, without its extension.
	name string
	// prefix starts the IDs of the rules.
	prefix string
	// rules are in the order of the page's table. %s stands for the resource.
	rules []Rule
}

// Rules returns all rules in the order of the pages and their tables.
func Rules() []Rule { return slices.Clone(rules) }

var rules = func() []Rule {
	var all []Rule
	for _, p := range pages {
		fill := func(text string) string { return strings.ReplaceAll(text, "%s", string(p.resource)) }
		for _, r := range p.rules {
			r.Resource, r.Page, r.ID = p.resource, p.name, p.prefix+"-"+r.ID
			r.Name, r.Title = fill(r.Name), fill(r.Title)
			all = append(all, r)
		}
	}
	return all
}()

// The notes of the tables.
const (
	forClusterClass = "Mandatory for ClusterClasses support"
	forClusterctl   = "Mandatory for clusterctl CLI support"
	forEndpoint     = "Mandatory if control plane endpoint is not provided by other means."
)

// The shapes of fields that several rules share.
var (
	endpoint  = object(must("host", text(512)), must("port", shape{kind: typeInteger, maximum: 65535}))
	condition = object(
		must("type", anyText), must("status", anyText),
		may("reason", anyText), may("message", anyText), may("lastTransitionTime", anyText), may("observedGeneration", integer),
	)
	attributes = may("attributes", mapOf(anyText))
)

// The rules that several pages have.
var (
	// allResources are the first rules of a page: about every kind of a resource, and about the kind itself.
	allResources = []Rule{
		{
			ID: "scope", Name: "All resources: scope", Mandatory: true,
			Title: "The %s kinds are namespaced",
			Fix:   "set `scope: Namespaced` (in Go, `+kubebuilder:resource:scope=Namespaced`); the scope of a CRD can't be changed later",
			each:  scope,
		},
		{
			ID: "type-meta", Name: "All resources: `TypeMeta` and `ObjectMeta`field", Mandatory: true,
			Title: "The %s kinds have the standard type and object metadata",
			Fix:   fixTypeMeta,
			each:  typeMeta,
		},
		{
			ID: "api-version", Name: "All resources: `APIVersion` field value", Mandatory: true,
			Title: "The %s kinds declare a contract version with one of their own versions",
			Fix:   "set the label " + label(v1beta2) + " of the CRD to its version that has the contract's fields",
			each:  apiVersion,
		},
		{
			ID: "resource-definition", Name: "%s, %sList resource definition", Mandatory: true,
			Title:       "The %s kind and its list are defined under the names that Cluster API calculates",
			Fix:         "define the kind under the names of the contract page",
			definitions: definition,
		},
	}
	conditions = Rule{
		ID: "conditions", Name: "%s: conditions",
		Title: "Cluster API can read the %s's conditions",
		Fix:   "make status.conditions a list of objects with type and status (in Go, []metav1.Condition)",
		field: fieldRule{path: "status.conditions", shape: listOf(condition)},
	}
	terminalFailures = Rule{
		ID: "terminal-failures", Name: "%s: terminal failures",
		Title:  "The %s does not report terminal failures in deprecated fields",
		Fix:    "make status.failureReason and status.failureMessage strings",
		fields: judgeTerminalFailures,
	}
	mandatoryTemplate = Rule{
		ID: "template", Name: "%sTemplate, %sTemplateList resource definition", Mandatory: true,
		Title:       "The %s has a template, with the names and the fields that Cluster API reads",
		Fix:         fixTemplate,
		definitions: template,
	}
	optionalTemplate = Rule{
		ID: "template", Name: "%sTemplate, %sTemplateList resource definition", Note: forClusterClass,
		Title:       "The %s's template has the names and the fields that Cluster API reads",
		Fix:         fixTemplate,
		definitions: template,
	}
	dryRun = Rule{
		ID: "template-dry-run", Name: "%sTemplate: support for SSA dry run", Note: forClusterClass,
		Hidden: "what the webhook does when the topology controller dry-runs an apply",
	}
	inPlaceChanges    = Rule{ID: "in-place-changes", Name: "%s: support for in-place changes", Hidden: hiddenInPlace}
	multiTenancy      = Rule{ID: "multi-tenancy", Name: "Multi tenancy", Note: forClusterctl, Hidden: hiddenInstances}
	multipleInstances = Rule{ID: "multiple-instances", Name: "Support for running multiple instances", Note: forClusterctl, Hidden: hiddenInstances}
	clusterctlSupport = Rule{
		ID: "clusterctl-support", Name: "Clusterctl support", Note: forClusterctl,
		Hidden: "the clusterctl contract has its own rules: the checks of all other groups cover them",
	}
	pausing = Rule{ID: "pausing", Name: "%s: pausing", Hidden: "what the controller does while the Cluster or the object is paused"}
)

const (
	fixTypeMeta     = "embed metav1.TypeMeta and metav1.ObjectMeta in the Go type and generate the CRD again"
	fixTemplate     = "define the template with spec.template.spec, which contains the spec of the kind"
	hiddenInPlace   = "what the controllers do while a machine is updated in place"
	hiddenInstances = "whether the manager supports --namespace and --watch-filter; the checks of the components look at the flags that are set"
)

// initialized returns the rule about the field that reports an initialized resource: one of status.initialization, and
// another one of status under the v1beta1 contract.
func initialized(what, name, old string) Rule {
	return Rule{
		ID: "initialization-completed", Name: "%s: initialization completed", Mandatory: true,
		Title: "The %s can report that " + what,
		Fix:   "add status.initialization." + name + " as a boolean",
		field: fieldRule{path: "status.initialization." + name, shape: boolean, awaited: true,
			old: &fieldRule{path: "status." + old, shape: boolean, fix: "add status." + old + " as a boolean, as the v1beta1 contract requires"}},
	}
}

// provisioned is the rule about initialization for infrastructure.
var provisioned = initialized("its infrastructure is provisioned", "provisioned", "ready")

// pages are the contract pages in their order.
var pages = []page{
	{InfraCluster, "infra-cluster", "infra-cluster", slices.Concat(allResources, []Rule{
		{
			ID: "control-plane-endpoint", Name: "%s: control plane endpoint", Note: forEndpoint,
			Title: "Cluster API can read the InfraCluster's control plane endpoint",
			Fix:   "make spec.controlPlaneEndpoint an object with host, a string, and port, an integer",
			field: fieldRule{path: "spec.controlPlaneEndpoint", shape: endpoint},
		},
		{
			ID: "failure-domains", Name: "%s: failure domains",
			Title: "The InfraCluster's failure domains have the form of its contract version",
			Fix:   "make status.failureDomains a list of objects with name, controlPlane and attributes (in Go, []clusterv1.FailureDomain)",
			field: fieldRule{path: "status.failureDomains", shape: mergedBy(100, object(must("name", text(256)), may("controlPlane", boolean), attributes), "name"),
				old: &fieldRule{path: "status.failureDomains", shape: mapOf(object(may("controlPlane", boolean), attributes)),
					fix: "make status.failureDomains a map of objects with controlPlane and attributes, as the v1beta1 contract requires, or declare v1beta2"}},
		},
		provisioned, conditions, terminalFailures, optionalTemplate,
		{
			ID: "externally-managed", Name: "Externally managed infrastructure",
			Hidden: "what the controller does with objects that another system manages",
		},
		multiTenancy, clusterctlSupport, pausing,
	})},
	{InfraMachine, "infra-machine", "infra-machine", slices.Concat(allResources, []Rule{
		{
			ID: "provider-id", Name: "%s: provider ID", Mandatory: true,
			Title:  "The InfraMachine has the ID with which Cluster API finds its node",
			Fix:    "add spec.providerID as an optional string",
			fields: machineProviderID,
		},
		{
			ID: "failure-domain", Name: "%s: failure domain",
			Title: "Cluster API can read the InfraMachine's failure domain",
			Fix:   "make the field a string",
			field: fieldRule{path: "status.failureDomain", shape: text(256), old: &fieldRule{path: "spec.failureDomain", shape: anyText}},
		},
		{
			ID: "addresses", Name: "%s: addresses",
			Title: "Cluster API can read the InfraMachine's addresses",
			Fix:   "make status.addresses a list of objects with type and address (in Go, []clusterv1.MachineAddress)",
			field: fieldRule{path: "status.addresses", shape: listOf(object(must("type", anyText), must("address", anyText)))},
		},
		provisioned, conditions, terminalFailures, inPlaceChanges, mandatoryTemplate, dryRun, multiTenancy, clusterctlSupport, pausing,
		{
			ID: "template-autoscaling", Name: "%sTemplate: support cluster autoscaling from zero",
			Title:       "The cluster autoscaler can read the InfraMachineTemplate's capacity",
			Fix:         "make status.capacity a map of quantities (in Go, corev1.ResourceList) and status.nodeInfo an object with architecture and operatingSystem",
			definitions: autoscaling,
		},
	})},
	{InfraMachinePool, "infra-machinepool", "infra-machine-pool", slices.Concat(allResources, []Rule{
		{
			ID: "instances", Name: "%s: instances",
			Title: "The InfraMachinePool's instances are a list of objects",
			Fix:   "make status.instances a list of objects",
			field: fieldRule{path: "status.instances", shape: listOf(anything)},
		},
		{
			ID: "machines", Name: "MachinePoolMachines support",
			Title: "The InfraMachinePool names the kind of its machines in a string",
			Fix:   "make status.infrastructureMachineKind a string",
			field: fieldRule{path: "status.infrastructureMachineKind", shape: anyText},
		},
		{
			ID: "provider-id", Name: "%s: providerID",
			Title: "The InfraMachinePool's own ID is an optional string",
			Fix:   "make spec.providerID an optional string",
			field: fieldRule{path: "spec.providerID", shape: text(512), written: true},
		},
		{
			ID: "provider-id-list", Name: "%s: providerIDList", Mandatory: true,
			Title: "The InfraMachinePool has the IDs with which Cluster API finds its nodes",
			Fix:   "add spec.providerIDList as an optional list of strings",
			field: fieldRule{path: "spec.providerIDList", shape: atomicList(10000, text(512)), written: true},
		},
		{
			ID: provisioned.ID, Name: provisioned.Name, Mandatory: true, Title: provisioned.Title, Fix: provisioned.Fix,
			fields: poolInitialized,
		},
		pausing, conditions,
		{
			ID: "replicas", Name: "%s: replicas", Mandatory: true,
			Title: "The InfraMachinePool reports the number of its machines",
			Fix:   "add status.replicas as an integer",
			field: fieldRule{path: "status.replicas", shape: integer},
		},
		terminalFailures,
		{
			// The name of the list is misspelt in the table.
			ID: optionalTemplate.ID, Name: "InfraMachinePoolTemplate, InfraMachineTemplatePoolList resource definition", Note: optionalTemplate.Note,
			Title: optionalTemplate.Title, Fix: fixTemplate,
			definitions: template,
		},
		dryRun, multiTenancy, clusterctlSupport,
	})},
	{BootstrapConfig, "bootstrap-config", "bootstrap-config", slices.Concat(allResources, []Rule{
		{
			ID: "data-secret", Name: "%s: data secret", Mandatory: true,
			Title: "The BootstrapConfig names the Secret with its data",
			Fix:   "add status.dataSecretName as a string",
			field: fieldRule{path: "status.dataSecretName", shape: text(253)},
		},
		initialized("its Secret exists", "dataSecretCreated", "ready"),
		conditions, terminalFailures, inPlaceChanges, mandatoryTemplate, dryRun,
		{ID: "sentinel-file", Name: "Sentinel file", Hidden: "what the bootstrap data does on a machine once its node has joined"},
		{ID: "taint", Name: "Taint Nodes at creation", Hidden: "the taints with which the kubelet registers"},
		multipleInstances, clusterctlSupport, pausing,
	})},
	{ControlPlane, "control-plane", "control-plane", slices.Concat(allResources, []Rule{
		{
			ID: "endpoint", Name: "%s: endpoint", Note: forEndpoint,
			Title: "Cluster API can read the ControlPlane's endpoint",
			Fix:   "make spec.controlPlaneEndpoint an object with host, a string, and port, an integer",
			field: fieldRule{path: "spec.controlPlaneEndpoint", shape: endpoint},
		},
		{
			ID: "replicas", Name: "%s: replicas",
			Note:   "Mandatory if control plane has a notion of number of instances.",
			Title:  "A ControlPlane with replicas has the counters and the scale subresource",
			Fix:    "add the missing fields next to spec.replicas, as the contract page requires",
			fields: replicas,
		},
		{
			ID: "version", Name: "%s: version",
			Note:   "Mandatory if control plane allows direct management of the Kubernetes version in use; Mandatory for cluster class support.",
			Title:  "A ControlPlane with a version reports the running versions",
			Fix:    "add status.versions (in Go, []clusterv1.StatusVersion) next to spec.version, or status.version",
			fields: kubernetesVersion,
		},
		{
			ID: "machines", Name: "%s: machines",
			Note:   "Mandatory if control plane instances are represented with a set of Cluster API Machines.",
			Title:  "A ControlPlane's machine template has the form of its contract version",
			Fix:    "define the fields of the contract page in spec.machineTemplate",
			fields: machines,
		},
		{
			ID: "rollout-after", Name: "%s: rolloutAfter",
			Title:  "A ControlPlane's scheduled rollout is in the field of its contract version",
			Fix:    "add spec.rollout.after as a string (in Go, metav1.Time)",
			fields: rolloutAfter,
		},
		initialized("it is initialized", "controlPlaneInitialized", "initialized"),
		{
			ID: "in-place-updates", Name: "%s: in-place updates",
			Note: "Only supported for control plane providers with control plane machines", Hidden: hiddenInPlace,
		},
		conditions, terminalFailures, optionalTemplate,
		{
			ID: "kubeconfig", Name: "Cluster kubeconfig management", Mandatory: true,
			Hidden: "the Secret with the kubeconfig that the controller creates and renews",
		},
		{ID: "certificates", Name: "Cluster certificate management", Hidden: "the Secrets with certificates that the controller creates"},
		{ID: "machine-placement", Name: "Machine placement", Hidden: "how the controller spreads its machines over failure domains"},
		{ID: "metadata-propagation", Name: "Metadata propagation", Hidden: "which labels and annotations the controller copies to its machines"},
		{ID: "min-ready-seconds", Name: "MinReadySeconds and UpToDate propagation", Hidden: "what the controller writes to its machines"},
		multipleInstances, clusterctlSupport, pausing,
	})},
	// The page has a numbered list instead of a table. It requires no contract label, so claims may name each served
	// version.
	{IPAM, "ipam", "ipam-pool", []Rule{
		{
			ID: "api-group", Name: "Pool: API group served by the API server", Mandatory: true,
			Title: "The kinds of pools are served",
			Fix:   "serve the stored version of the pools",
			each:  poolServed,
		},
		{
			ID: "resource-definition", Name: "Pool: custom resource definition and its name", Mandatory: true,
			Title:       "The kinds of pools are defined under the names that Cluster API calculates",
			Fix:         "define the kind under the name of the contract page",
			definitions: definition,
		},
		{
			ID: "type-meta", Name: "Pool: type metadata and object metadata", Mandatory: true,
			Title: "The kinds of pools have the standard type and object metadata",
			Fix:   fixTypeMeta,
			each:  typeMeta,
		},
		{
			ID: "conditions", Name: "Pool: status.conditions with Ready", Note: "Should be there",
			Title: "Cluster API can read the conditions of pools",
			Fix:   conditions.Fix,
			field: conditions.field,
		},
	}},
}
