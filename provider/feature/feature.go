// Package feature has the provider's feature gates.
package feature

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/featuregate"
)

const (
	// MachinePool enables the controller and the webhooks of LibvirtMachinePool.
	//
	// beta: v0.1
	MachinePool featuregate.Feature = "MachinePool"

	// InPlaceUpdates lets an update extension change cpus, memory and disk sizes of a running
	// LibvirtMachine, instead of replacing it. Without it such changes are accepted and ignored.
	//
	// alpha: v0.1
	InPlaceUpdates featuregate.Feature = "InPlaceUpdates"

	// NodeProviderIDs gives nodes that have no provider ID that of the machine whose domain they are in.
	// The manager connects to workload clusters for it.
	//
	// beta: v0.1
	NodeProviderIDs featuregate.Feature = "NodeProviderIDs"
)

var (
	// MutableGates is for main and for tests, which set gates. Other code reads Gates.
	MutableGates featuregate.MutableFeatureGate = featuregate.NewFeatureGate()

	// Gates reports which features are enabled.
	Gates featuregate.FeatureGate = MutableGates
)

func init() {
	utilruntime.Must(MutableGates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		MachinePool:     {Default: true, PreRelease: featuregate.Beta},
		NodeProviderIDs: {Default: true, PreRelease: featuregate.Beta},
		InPlaceUpdates:  {Default: false, PreRelease: featuregate.Alpha},
	}))
}
