package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// The paths of the images on the server: for guests, load balancers, the one with signatures, nodes before an upgrade,
// and SlowImage.
const (
	guestPath    = "/guest.qcow2"
	balancerPath = "/balancer.qcow2"
	signedPath   = "/signed.qcow2"
	oldNodePath  = "/old-node.qcow2"
	slowPath     = "/slow.qcow2"
)

// imageURL returns the URL of an image for pods.
func imageURL(path string) string { return "http://" + network.Masked().Addr().Next().String() + path }

// GuestVariables returns the variables of the provider's templates for machines with the guest image, which
// PrepareGuest has built and ServeGuest serves. The cluster's API server gets a unique address. The variables of load
// balancers exist after PrepareBalancer. No template uses those of the image with signatures, which exist after
// PrepareSigned, and LIBVIRT_OLD_IMAGE_URL and _CHECKSUM, which exist after PrepareOldNode.
func GuestVariables() (map[string]string, error) {
	variables := map[string]string{
		"CONTROL_PLANE_ENDPOINT_IP": EndpointIP(10).String(),
		"CLUSTER_TOPOLOGY":          "true", // the feature gate of managed topologies
	}
	for prefix, image := range servedImages() {
		content, err := os.ReadFile(image.file)
		if err != nil {
			return nil, fmt.Errorf("reading the image for guests: %w", err)
		}
		sum := sha256.Sum256(content)
		variables[prefix+"_URL"] = imageURL(image.path)
		variables[prefix+"_CHECKSUM"] = checksum(sum)
	}
	maps.Copy(variables, guestSizes())
	return variables, nil
}

// guestSizes returns the variables for the sizes of machines: a host has the memory of this machine, and less space for
// disks than the machines of the templates have by default.
func guestSizes() map[string]string {
	variables := map[string]string{}
	for _, role := range []string{"CONTROL_PLANE", "WORKER", "HAPROXY"} {
		variables["LIBVIRT_"+role+"_CPUS"] = "1"
		variables["LIBVIRT_"+role+"_MEMORY"] = "256Mi"
		variables["LIBVIRT_"+role+"_DISK_SIZE"] = "1Gi"
	}
	return variables
}

func checksum(sum [sha256.Size]byte) string { return "sha256:" + hex.EncodeToString(sum[:]) }

// servedImage is an image with its path in the URL and its file.
type servedImage struct{ path, file string }

// servedImages returns the prepared images by the prefixes of their variables.
func servedImages() map[string]servedImage {
	images := map[string]servedImage{"LIBVIRT_IMAGE": {guestPath, GuestImage()}}
	if file := BalancerImage(); file != "" {
		images["LIBVIRT_HAPROXY_IMAGE"] = servedImage{balancerPath, file}
	}
	if file := SignedImage(); file != "" {
		images[signedPrefix] = servedImage{signedPath, file}
	}
	if file := oldNodeImage(); file != "" {
		images["LIBVIRT_OLD_IMAGE"] = servedImage{oldNodePath, file}
	}
	return images
}

// SignedImageURL and SignedImageChecksum name the image that starts with secure boot on, among GuestVariables.
const (
	signedPrefix        = "TESTBED_SIGNED_IMAGE"
	SignedImageURL      = signedPrefix + "_URL"
	SignedImageChecksum = signedPrefix + "_CHECKSUM"
)

// ServeGuest serves the prepared images to pods.
func (t *Testbed) ServeGuest(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(t.Network.Gateway().String(), "80"))
	if err != nil {
		return err
	}
	t.served = http.NewServeMux()
	for _, image := range servedImages() {
		t.served.HandleFunc(image.path, func(response http.ResponseWriter, request *http.Request) {
			http.ServeFile(response, request, image.file)
		})
	}
	server := &http.Server{Handler: t.served, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.stops = append(t.stops, server.Close)
	return nil
}

// SlowImage serves a new image, which no host has: the guest image with some extra bytes. It is sent very slowly until
// hurry is called. SlowImage is for one call in a testbed, after ServeGuest.
func (t *Testbed) SlowImage() (url, sum string, hurry func(), err error) {
	content, err := os.ReadFile(GuestImage())
	if err != nil {
		return "", "", nil, fmt.Errorf("reading the image for guests: %w", err)
	}
	content = append(content, make([]byte, 1<<16)...)
	soon := make(chan struct{})
	t.served.HandleFunc(slowPath, func(response http.ResponseWriter, request *http.Request) {
		response.Header().Set("Content-Length", strconv.Itoa(len(content)))
		left := content
		for len(left) > slowPiece {
			select {
			case <-soon:
				_, _ = response.Write(left) // a client that has left retries
				return
			case <-request.Context().Done():
				return
			case <-time.After(time.Second):
				_, _ = response.Write(left[:slowPiece])
				_ = http.NewResponseController(response).Flush()
				left = left[slowPiece:]
			}
		}
		_, _ = response.Write(left)
	})
	return imageURL(slowPath), checksum(sha256.Sum256(content)), sync.OnceFunc(func() { close(soon) }), nil
}

// slowPiece is the number of bytes of a slow image in a second.
const slowPiece = 4 << 10
