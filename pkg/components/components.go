// Package components builds a provider's components YAML: the result of the kustomization with its images set, in one
// namespace, with the provider's label, in a stable order.
package components

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// Options are the parameters of a build.
type Options struct {
	// Provider is the provider's entry in the release file.
	Provider release.ProviderConfig
	// Version is the release's version; images without a tag get it.
	Version string
	// Images are references by image name that override those of the release file.
	Images map[string]string
}

// Components is a provider's components YAML as objects.
type Components struct {
	// Objects are in the order of the file.
	Objects []unstructured.Unstructured
	// UsedImages are the keys of Options.Images for which the components have an image.
	UsedImages []string
	// Notes are hints for maintainers about changed objects.
	Notes []string
}

// Build runs the provider's kustomization and applies the rules of the contract to the result. It changes nothing in
// the tree. Errors name the object and what to do; those of kustomize are *tree.KustomizeError.
//
// Source: clusterctl provider contract, "Components YAML".
func Build(t *tree.Tree, options Options) (*Components, error) {
	resources, err := t.Kustomize(options.Provider.Kustomize)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.Provider.Provider().Label(), err)
	}
	objects, err := ObjectsOf(resources)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Display(options.Provider.Kustomize), err)
	}
	c := &Components{Objects: objects}
	if err := c.make(options); err != nil {
		return nil, fmt.Errorf("%s (%s): %w", options.Provider.Provider().Label(), t.Display(options.Provider.Kustomize), err)
	}
	return c, nil
}

// make applies the rules of the contract to the objects from kustomize.
func (c *Components) make(options Options) error {
	if err := c.requireManager(); err != nil {
		return err
	}
	if err := c.setImages(options); err != nil {
		return err
	}
	if err := c.setNamespace(options.Provider.Namespace); err != nil {
		return err
	}
	if err := c.setProviderLabel(options.Provider.Provider().Label()); err != nil {
		return err
	}
	c.sort()
	return nil
}

// sort puts the objects into the order in which clusterctl installs them: the namespace, then cert-manager's objects,
// so that a certificate is requested before the objects that wait for its CA, then the rest in kustomize's order.
func (c *Components) sort() {
	rank := func(o unstructured.Unstructured) int {
		switch {
		case isNamespace(o):
			return 0
		case o.GroupVersionKind().Group == "cert-manager.io":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(c.Objects, func(a, b unstructured.Unstructured) int { return rank(a) - rank(b) })
}

// requireManager reports an error if no Deployment has the container that clusterctl looks for.
// Source: clusterctl provider contract, "Controllers & Watching namespace".
func (c *Components) requireManager() error {
	var inDeployments, others []string
	for _, o := range c.Objects {
		pod, _ := manifest.PodOf(o)
		for _, c := range pod.Containers() {
			switch text := fmt.Sprintf("%s in %s", c.Name(), describe(o)); {
			case o.GetKind() != "Deployment":
				others = append(others, text)
			case c.Name() == manifest.ManagerContainer:
				return nil
			default:
				inDeployments = append(inDeployments, text)
			}
		}
	}
	all := append(inDeployments, others...)
	if len(all) == 0 {
		return fmt.Errorf("the kustomization has no Deployment: clusterctl expects one with a container called %q; does the kustomization list the manager's folder?", manifest.ManagerContainer)
	}
	fix := "rename the one that runs the controllers"
	if len(inDeployments) == 0 {
		fix = "clusterctl expects the controllers in a Deployment"
	}
	return fmt.Errorf("no Deployment has a container called %q; the containers are: %s; %s", manifest.ManagerContainer, strings.Join(all, ", "), fix)
}

// isNamespace reports whether an object is a Namespace.
func isNamespace(o unstructured.Unstructured) bool {
	return o.GetKind() == "Namespace" && o.GetAPIVersion() == "v1"
}

// describe names an object in messages.
func describe(o unstructured.Unstructured) string {
	return manifest.ObjectOf(o).String()
}

// note records a hint for the maintainer.
func (c *Components) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}
