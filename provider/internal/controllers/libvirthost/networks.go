package libvirthost

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
)

// setNetworks says which networks of the spec the host lacks. Whether it has a bridge or a device can't
// always be told: then it counts as there, and the message says so.
func setNetworks(host *infrav1.LibvirtHost, snapshot fleet.Snapshot) {
	lacking, unknown := networkProblems(snapshot), []string{}
	for _, network := range host.Spec.Networks {
		name, what := network.Bridge, "bridge"
		if name == "" {
			name, what = network.MacvtapDevice, "macvtap device"
		}
		seen, looked := snapshot.Interfaces[name]
		switch {
		case name == "" || !looked:
		case seen.Err != nil:
			unknown = append(unknown, fmt.Sprintf("Whether there is the %s %s can't be told: %s", what, name, seen.Err.Error()))
		case !seen.There:
			lacking = append(lacking, fmt.Sprintf("There is no network interface %s, which network %s has as its %s", name, network.Name, what))
		}
	}
	if len(lacking) > 0 {
		setLacking(host, infrav1.NetworksReadyCondition, infrav1.NetworksReadyReason, infrav1.NetworksNotReadyReason, append(lacking, unknown...))
		return
	}
	slices.Sort(unknown)
	set(host, infrav1.NetworksReadyCondition, metav1.ConditionTrue, infrav1.NetworksReadyReason, strings.Join(unknown, "; "))
}

func networkProblems(snapshot fleet.Snapshot) []string {
	var problems []string
	for name, network := range snapshot.Networks {
		if problem := problem(network.Err, network.Active); problem != "" {
			problems = append(problems, fmt.Sprintf("libvirt network %s %s", name, problem))
		}
	}
	return problems
}
