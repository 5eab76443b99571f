package testbed

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/clusterctl-release/clusterctl-release/internal/image"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/repository"
)

// registryAddress is where pods and guests find the registry of ServeManagers.
func registryAddress() string {
	return net.JoinHostPort(network.Masked().Addr().Next().String(), "5000")
}

// RegistryURL is the URL of the registry of ServeManagers.
func RegistryURL() string { return "http://" + registryAddress() }

// ServeManagers serves the container images of the managers that clusterctl installs, for nodes that run containers: the
// provider's is the one of its release, and the others are made of the programs that pods run. An image has the repository
// and the tag that it has in its own registry.
func (t *Testbed) ServeManagers(ctx context.Context) error {
	address := registryAddress()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.stops = append(t.stops, server.Close)

	if _, err := image.Push(ctx, t.prepared.layout(), address+"/"+repositoryOf(providerImage)); err != nil {
		return err
	}
	platform := program.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	for _, provider := range repository.Providers {
		built, err := image.Of(t.prepared.Tools[provider.Tool], "/manager", platform)
		if err != nil {
			return err
		}
		ref, err := name.NewTag(address + "/" + repositoryOf(provider.Image) + ":" + t.prepared.Sources[provider.Module].Version)
		if err != nil {
			return err
		}
		if err := remote.Write(ref, built, remote.WithContext(ctx)); err != nil {
			return fmt.Errorf("pushing %s: %w", ref, err)
		}
	}
	return nil
}

// repositoryOf returns an image's repository without its registry.
func repositoryOf(image string) string {
	_, repository, _ := strings.Cut(image, "/")
	return repository
}

// layout is the folder with the provider's image.
func (p prepared) layout() string {
	return filepath.Join(p.Release, "images", path.Base(providerImage))
}
