package libvirthost

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
)

// setNetworks sets the condition of the networks in the spec. A bridge or device that the host can't look up counts as
// existing, with a message.
func setNetworks(host *infrav1.LibvirtHost, snapshot fleet.Snapshot) {
	lacking, unknown := networkProblems(snapshot), []string{}
	for _, network := range host.Spec.Networks {
		lacking = append(lacking, cannotHave(&network, snapshot)...)
		name, what := network.Bridge, "bridge"
		if name == "" {
			name, what = network.MacvtapDevice, "macvtap device"
		}
		seen, looked := snapshot.Interfaces[name]
		switch {
		case name == "" || !looked:
		case seen.Err != nil:
			unknown = append(unknown, fmt.Sprintf("Unknown whether the %s %s exists: %s", what, name, seen.Err.Error()))
		case !seen.There:
			lacking = append(lacking, fmt.Sprintf("Network interface %s doesn't exist: it is the %s of network %s", name, what, network.Name))
		}
	}
	if len(lacking) > 0 {
		setLacking(host, infrav1.NetworksReadyCondition, infrav1.NetworksReadyReason, infrav1.NetworksNotReadyReason, append(lacking, unknown...))
		return
	}
	slices.Sort(unknown)
	set(host, infrav1.NetworksReadyCondition, metav1.ConditionTrue, infrav1.NetworksReadyReason, strings.Join(unknown, "; "))
}

// The first versions of libvirt that support a setting. Older ones ignore it.
var (
	isolationSince = version.MustParseGeneric("6.1.0")
	linuxVLANSince = version.MustParseGeneric("11.0.0")
)

// cannotHave lists the settings of a network that the host doesn't support.
func cannotHave(network *infrav1.HostNetwork, snapshot fleet.Snapshot) []string {
	var lacking []string
	needs := func(field string, since *version.Version) {
		has, err := version.ParseGeneric(snapshot.Facts.LibvirtVersion)
		if err != nil || !has.AtLeast(since) {
			lacking = append(lacking, fmt.Sprintf("%s of network %s needs libvirt %s, and the host has %s", field, network.Name, since, snapshot.Facts.LibvirtVersion))
		}
	}
	isolated := ptr.Deref(network.Isolated, false)
	if isolated {
		needs("isolated", isolationSince)
	}
	if network.VLAN != 0 && network.BridgeType != infrav1.BridgeTypeOpenVSwitch {
		needs("vlan on a Linux bridge", linuxVLANSince)
	}
	seen := snapshot.Networks[network.LibvirtNetwork]
	if network.LibvirtNetwork != "" && seen.Err == nil && !seen.LinuxBridge && (isolated || network.Filter != nil) {
		lacking = append(lacking, fmt.Sprintf("isolated and filter of network %s need a Linux bridge, and libvirt network %s isn't on one", network.Name, network.LibvirtNetwork))
	}
	if network.Filter == nil {
		return lacking
	}
	filter := snapshot.Filters[network.Filter.Name]
	if problem := problem(filter.Err, true); problem != "" {
		return append(lacking, fmt.Sprintf("Network filter %s of network %s %s", network.Filter.Name, network.Name, problem))
	}
	if !filter.There {
		lacking = append(lacking, fmt.Sprintf("Network filter %s of network %s doesn't exist", network.Filter.Name, network.Name))
	}
	return lacking
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
