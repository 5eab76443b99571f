package release

import (
	"cmp"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// The names of the release file and of its format.
const (
	// ConfigFile is the name of the release file at the root of a source tree.
	ConfigFile = "clusterctl-release.yaml"
	// ConfigAPIVersion and ConfigKind are what the release file says of itself.
	ConfigAPIVersion = "clusterctl-release/v1alpha1"
	ConfigKind       = "ReleaseConfig"
)

// Config is the release file, clusterctl-release.yaml at a source tree's root: how the tree becomes
// a release. All paths in it are relative to the release file's folder and use forward slashes.
type Config struct {
	// The format of this file.
	APIVersion string `json:"apiVersion" jsonschema:"enum=clusterctl-release/v1alpha1"`

	// The kind of this file.
	Kind string `json:"kind" jsonschema:"enum=ReleaseConfig"`

	// The metadata.yaml of every provider that names none of its own. Default: metadata.yaml.
	Metadata string `json:"metadata,omitempty" jsonschema:"minLength=1"`

	// The providers that are released together under one version.
	Providers []ProviderConfig `json:"providers" jsonschema:"minItems=1"`

	// Where the file was read from; not part of the file.
	Path string `json:"-"`
}

// ProviderConfig says how one provider of a tree is built.
type ProviderConfig struct {
	// The provider's name for clusterctl: lower case letters, digits and '-', at most 63 characters.
	Name string `json:"name" jsonschema:"minLength=1,maxLength=63,pattern=^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"`

	// The provider's type for clusterctl.
	Type clusterctlv1.ProviderType `json:"type" jsonschema:"enum=CoreProvider,enum=BootstrapProvider,enum=ControlPlaneProvider,enum=InfrastructureProvider,enum=IPAMProvider,enum=RuntimeExtensionProvider,enum=AddonProvider"`

	// The folder with the kustomization that gives the provider's components.
	Kustomize string `json:"kustomize" jsonschema:"minLength=1"`

	// The namespace that the components go to. Default: the name of the Namespace in the kustomization's result, or the only namespace that its objects name.
	Namespace string `json:"namespace,omitempty" jsonschema:"maxLength=63,pattern=^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"`

	// The images of the release. An image that is not listed stays as the kustomization has it.
	Images []ImageConfig `json:"images,omitempty"`

	// The provider's metadata.yaml. Default: the file's own.
	Metadata string `json:"metadata,omitempty" jsonschema:"minLength=1"`

	// The workload cluster templates.
	Templates []AssetConfig `json:"templates,omitempty"`

	// The ClusterClass definitions.
	ClusterClasses []AssetConfig `json:"clusterClasses,omitempty"`

	// Files that are published with the others and that clusterctl does not read.
	Files []AssetConfig `json:"files,omitempty"`

	// Sets of values for the variables of templates and components. Checks render the templates once with each set.
	SampleValues []SampleValues `json:"sampleValues,omitempty"`

	// Findings of checks that are right as they are. Reports list what was turned off.
	Suppress []Suppression `json:"suppress,omitempty"`
}

// Suppression turns off the findings of one check, as far as its file and object say.
type Suppression struct {
	// The check's id.
	Check string `json:"check" jsonschema:"minLength=1"`

	// The file of the release that the findings are in. Default: any.
	File string `json:"file,omitempty"`

	// The object that the findings are about, as reports name it: "Kind name" or "Kind namespace/name". Default: any.
	Object string `json:"object,omitempty"`

	// Why the finding is right as it is, for those who read the report.
	Reason string `json:"reason" jsonschema:"minLength=1"`
}

// ImageConfig sets one image of a provider, as the images field of a kustomization does.
type ImageConfig struct {
	// The image's name in the kustomization's result, without tag and digest.
	Name string `json:"name" jsonschema:"minLength=1"`

	// The name it is released under, canonical: with its registry's host. Default: the name.
	NewName string `json:"newName,omitempty"`

	// The tag it is released under. Default: the release's version.
	NewTag string `json:"newTag,omitempty" jsonschema:"pattern=^[A-Za-z0-9_][A-Za-z0-9_.-]*$,maxLength=128"`

	// The digest it is released under, instead of a tag.
	Digest string `json:"digest,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
}

// AssetConfig names files that become files of the release: copied (path) or built (kustomize).
type AssetConfig struct {
	// A file of the tree, or a pattern ('*', '?' and '[a-z]' within the names of folders and files) for one or more. Each is published under its own name.
	Path string `json:"path,omitempty" jsonschema:"minLength=1,oneof_required=path"`

	// A folder with a kustomization whose result is published under the name in 'as'.
	Kustomize string `json:"kustomize,omitempty" jsonschema:"minLength=1,oneof_required=kustomize"`

	// The file's name in the release. Needed with 'kustomize'; with 'path' only where the file's own name is not the contract's, and then the path names one file.
	As string `json:"as,omitempty" jsonschema:"minLength=1,pattern=^[^/]+$"`
}

// SampleValues is a named set of values for variables.
type SampleValues struct {
	// The set's name, for reports.
	Name string `json:"name" jsonschema:"minLength=1"`

	// The files of the release that the set is for, by name. Default: every template.
	Files []string `json:"files,omitempty"`

	// The values by variable.
	Values map[string]string `json:"values"`
}

// Provider returns which provider the entry is for.
func (p ProviderConfig) Provider() Provider {
	return Provider{Name: p.Name, Type: p.Type}
}

// MetadataPath returns the path of the provider's metadata.yaml, relative to the release file's folder.
func (c *Config) MetadataPath(p ProviderConfig) string {
	return cmp.Or(p.Metadata, c.Metadata, MetadataFile)
}
