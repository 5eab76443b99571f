package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

var (
	macAddress  = regexp.MustCompile(`<mac address=["']([0-9a-f:]+)["']`)
	addressUsed atomic.Uint32
)

// runGuests plays the guests of a host until the context ends: each running domain gets an address by DHCP, and joins
// its workload cluster as a node.
func runGuests(ctx context.Context, c client.Client, host *Host) {
	booted := map[string]bool{}
	for uuid := range host.Observe(ctx) {
		if booted[uuid] || host.State(uuid) != hypervisor.StateRunning {
			continue
		}
		if err := boot(ctx, c, host, uuid); err != nil {
			ctrl.Log.Error(err, "A guest can't boot", "host", host.Name, "uuid", uuid)
			continue
		}
		booted[uuid] = true
	}
}

// boot gives a domain of this provider an address and lets it join.
func boot(ctx context.Context, c client.Client, host *Host, uuid string) error {
	text, _ := host.DomainXML(uuid)
	domain, err := hypervisor.ReadDomainXML(text)
	if err != nil || domain.Owner == nil {
		return err
	}
	mac := macAddress.FindStringSubmatch(text)
	if mac == nil {
		return errors.New("its XML has no MAC address")
	}
	number := addressUsed.Add(1)
	address := netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)}) //nolint:gosec // the bytes of a number
	if !host.Lease(uuid, hypervisor.InterfaceAddress{MAC: mac[1], Address: address}) {
		return nil // it was just removed
	}
	return join(ctx, c, host, domain, address)
}

func join(ctx context.Context, c client.Client, host *Host, domain hypervisor.Domain, address netip.Addr) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: domain.Owner.Namespace + "." + domain.Owner.Name},
		Spec: corev1.NodeSpec{ProviderID: infrav1.ProviderIDPrefix + domain.UUID}}
	if host.NoProviderIDs.Load() {
		node.Spec.ProviderID = ""
	}
	if err := c.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the node: %w", err)
	}
	before := client.MergeFrom(node.DeepCopy())
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	for _, pressure := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: pressure, Status: corev1.ConditionFalse, Reason: "Enough"})
	}
	node.Status.NodeInfo.KubeletVersion = version
	node.Status.NodeInfo.SystemUUID = strings.ToUpper(domain.UUID) // some firmware reports upper case
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.String()}}
	if err := c.Status().Patch(ctx, node, before); err != nil {
		return fmt.Errorf("writing the node's status: %w", err)
	}
	return nil
}
