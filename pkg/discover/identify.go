package discover

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/container"

	"github.com/clusterctl-release/clusterctl-release/pkg/components"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// managerImages returns the images of the containers called manager in Deployments, or nil without such a container.
func managerImages(objects []unstructured.Unstructured) []string {
	var images []string
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		pod, _ := manifest.PodOf(o)
		for _, c := range pod.Containers() {
			image := manifest.Text(c.Fields, "image")
			if c.Name() == manifest.ManagerContainer && !c.Init && !slices.Contains(images, image) {
				images = append(images, image)
			}
		}
	}
	return images
}

// identify returns the provider of a kustomization's objects, from their provider label, or else from the file that the
// build files create from it, from its CRDs and from the tree's name.
func identify(t *tree.Tree, dir string, objects []unstructured.Unstructured, file string) Provider {
	p := Provider{ProviderConfig: release.ProviderConfig{Kustomize: dir}}
	label := commonLabel(objects)
	if provider, err := release.ParseLabel(label); err == nil {
		p.Name, p.Type = provider.Name, provider.Type
		return p
	}
	p.Name, p.Type = label, cmp.Or(typeByFile(file), typeByGroups(objects))
	if p.Provider().Validate() != nil {
		p.Name = nameByModule(t)
	}
	if p.Type == clusterctlv1.CoreProviderType {
		p.Name = "cluster-api"
	}
	what := "no object has the label " + clusterv1.ProviderNameLabel
	if label != "" {
		what = fmt.Sprintf("the label %s is %q, which isn't a provider's label", clusterv1.ProviderNameLabel, label)
	}
	p.Remarks = append(p.Remarks, fmt.Sprintf("Name and type are guessed: %s.", what))
	return p
}

// commonLabel returns the provider label that most objects have, or "".
func commonLabel(objects []unstructured.Unstructured) string {
	counts := map[string]int{}
	best := ""
	for _, o := range objects {
		if value := o.GetLabels()[clusterv1.ProviderNameLabel]; value != "" {
			counts[value]++
			if counts[value] > counts[best] {
				best = value
			}
		}
	}
	return best
}

// groupTypes are the provider types by the API group of their CRDs, the most specific first.
var groupTypes = []struct {
	group string
	of    clusterctlv1.ProviderType
}{
	{"bootstrap.cluster.x-k8s.io", clusterctlv1.BootstrapProviderType},
	{"controlplane.cluster.x-k8s.io", clusterctlv1.ControlPlaneProviderType},
	{"infrastructure.cluster.x-k8s.io", clusterctlv1.InfrastructureProviderType},
	{"ipam.cluster.x-k8s.io", clusterctlv1.IPAMProviderType},
	{"addons.cluster.x-k8s.io", clusterctlv1.AddonProviderType},
}

// typeByGroups returns the provider type of the CRDs among objects; without CRDs of a provider, it assumes a runtime
// extension.
func typeByGroups(objects []unstructured.Unstructured) clusterctlv1.ProviderType {
	groups := map[string]bool{}
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			groups[manifest.Text(o.Object, "spec", "group")] = true
		}
	}
	if groups[clusterv1.GroupVersion.Group] {
		return clusterctlv1.CoreProviderType // core has CRDs in several of the groups below
	}
	for _, known := range groupTypes {
		if groups[known.group] {
			return known.of
		}
	}
	return clusterctlv1.RuntimeExtensionProviderType
}

// typeByFile returns the provider type whose components YAML has the name, or "".
func typeByFile(name string) clusterctlv1.ProviderType {
	for _, of := range release.ProviderTypes() {
		if (release.Provider{Type: of}).ComponentsFile() == name {
			return of
		}
	}
	return ""
}

// moduleName matches the usual names of provider repositories.
var moduleName = regexp.MustCompile(`^(?:cluster-api-)?(?:(?:bootstrap|control-plane|infrastructure|ipam|addon)-)?(?:provider-)?([a-z0-9-]+)$`)

// nameByModule returns the provider's name from the tree's Go module, or "provider".
func nameByModule(t *tree.Tree) string {
	name := path.Base(t.Root())
	if data, err := t.ReadFile("go.mod"); err == nil {
		if module := modfile.ModulePath(data); module != "" {
			name = path.Base(module)
		}
	}
	if match := moduleName.FindStringSubmatch(strings.ToLower(name)); match != nil {
		if (release.Provider{Name: match[1], Type: clusterctlv1.InfrastructureProviderType}).Validate() == nil {
			return match[1]
		}
	}
	return "provider"
}

// setImages lists the manager's images, so that they get the release's version as their tag.
func (p *Provider) setImages(images []string) {
	for _, image := range images {
		name := components.ImageName(image)
		if name == "" || strings.Contains(image, "$") {
			continue // set by a variable of clusterctl's when the provider is installed
		}
		p.Images = append(p.Images, release.ImageConfig{Name: name})
		if _, err := container.ImageFromString(image); err != nil {
			p.unplaced = append(p.unplaced, name)
			p.Remarks = append(p.Remarks, fmt.Sprintf("Clusterctl refuses the image %q, as it does not name its registry: set newName, or give --image %s=REFERENCE to each build.", image, name))
		}
	}
}
