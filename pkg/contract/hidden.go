package contract

// What the rules are about that no file of a release shows.
const (
	hiddenPausing    = "what the controller does while the Cluster or the object is paused"
	hiddenDryRun     = "what the webhook does when the topology controller dry-runs an apply"
	hiddenInPlace    = "what the controllers do while a machine is updated in place"
	hiddenInstances  = "whether the manager takes --namespace and --watch-filter; the components checks look at the flags that it is given"
	hiddenClusterctl = "the clusterctl contract has rules of its own: the checks of all other groups hold a release to them"
)

// mandatoryForClusterClass and the others are notes of the tables.
const (
	mandatoryForClusterClass = "Mandatory for ClusterClasses support"
	mandatoryForClusterctl   = "Mandatory for clusterctl CLI support"
	mandatoryForEndpoint     = "Mandatory if control plane endpoint is not provided by other means."
)
