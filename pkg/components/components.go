// Package components builds a provider's components YAML: the kustomization's result with its
// images set, in one namespace, labelled as the provider's, in a stable order.
package components

import (
	"fmt"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// Options says what to build.
type Options struct {
	// Provider is the provider's entry in the release file.
	Provider release.ProviderConfig
	// Version is the release's version; images that name no tag of their own get it.
	Version string
	// Images are references by image name that win over those of the release file.
	Images map[string]string
}

// Components is a provider's components YAML as objects.
type Components struct {
	// Objects are in the order of the file.
	Objects []unstructured.Unstructured
	// Namespace is the one that all namespaced objects are in.
	Namespace string
	// UsedImages are the keys of Options.Images that an image was found for.
	UsedImages []string
	// Notes tell what was changed that a maintainer may want to fix in the tree.
	Notes []string
}

// Build runs the provider's kustomization and makes of its result what the contract asks for.
// Nothing in the tree is changed. Errors name the object and what to do; those of kustomize are
// *tree.KustomizeError.
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

// make applies the rules of the contract to the objects that kustomize gave.
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

// sort puts the objects in the order in which clusterctl installs them: the namespace, then
// cert-manager's, so that a certificate is asked for before what waits for its CA, then the rest
// in kustomize's order.
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
	sort.SliceStable(c.Objects, func(i, j int) bool { return rank(c.Objects[i]) < rank(c.Objects[j]) })
}

// requireManager makes sure that a Deployment has the container that clusterctl looks for.
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
	switch {
	case len(inDeployments) > 0:
		return fmt.Errorf("no Deployment has a container called %q; the containers are: %s; rename the one that runs the controllers",
			manifest.ManagerContainer, strings.Join(append(inDeployments, others...), ", "))
	case len(others) > 0:
		return fmt.Errorf("there is no Deployment with a container called %q; the containers are: %s; clusterctl expects the controllers in a Deployment",
			manifest.ManagerContainer, strings.Join(others, ", "))
	}
	return fmt.Errorf("there is no Deployment: clusterctl expects one with a container called %q; does the kustomization list the manager's folder?", manifest.ManagerContainer)
}

// isNamespace says whether an object is a Namespace.
func isNamespace(o unstructured.Unstructured) bool {
	return o.GetKind() == "Namespace" && o.GetAPIVersion() == "v1"
}

// describe names an object in messages.
func describe(o unstructured.Unstructured) string {
	return manifest.ObjectOf(o).String()
}

// note records something for the maintainer.
func (c *Components) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}
