package compare

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// Difference is what changed from one release of a provider to another.
type Difference struct {
	Provider release.Provider
	// Before and After are versions.
	Before, After string
	// Contract is that of the releases' own series; its path is empty.
	Contract FieldChange
	Series   []SeriesChange
	// Objects, CRDs, Permissions and Images are those of the components.
	Objects     []ObjectChange
	CRDs        []CRDChange
	Permissions []PermissionChange
	Images      []ImageChange
	// Variables are those of the components; those of templates are with their files.
	Variables []VariableChange
	// Files are the cluster templates, class definitions and others; metadata and components are none of them.
	Files []FileDifference
	// Reworded are files that are other bytes and say the same, as far as it is compared here.
	Reworded []string
}

// SeriesChange is a release series with its contract; "" is no such series.
type SeriesChange struct{ Series, Before, After string }

// FileDifference is what became of a file.
type FileDifference struct {
	Name string
	Role release.Role
	// Title is the flavor's or class' name, or "" for the default flavor and for other files.
	Title string
	Kind  Kind
	// Variables and Objects say what changed in it.
	Variables []VariableChange
	Objects   []ObjectChange
	// Unread says that objects were not compared: the file is YAML only once its variables have values.
	Unread bool
}

// Empty says whether nothing changed.
func (d *Difference) Empty() bool {
	return d.Contract.Before == d.Contract.After && len(d.Series)+len(d.Objects)+len(d.CRDs)+len(d.Permissions)+len(d.Images)+
		len(d.Variables)+len(d.Files)+len(d.Reworded) == 0
}

// Releases compares two releases of one provider. The error is that of a file that can't be read: a
// *manifest.SyntaxError, a *metadata.ParseError, or that of clusterctl's processor.
func Releases(before, after *release.Release) (*Difference, error) {
	if before.Provider != after.Provider {
		return nil, fmt.Errorf("%s and %s are of two providers: nothing can be compared", before, after)
	}
	d := &Difference{Provider: after.Provider, Before: before.Version, After: after.Version}
	if err := d.compareMetadata(before, after); err != nil {
		return nil, err
	}
	if err := d.compareComponents(before, after); err != nil {
		return nil, err
	}
	for _, name := range fileNames(before, after) {
		old, was := before.File(name)
		now, is := after.File(name)
		if was && is && bytes.Equal(old.Data, now.Data) {
			continue
		}
		compared, err := compareFile(after, old, now, was, is)
		if err != nil {
			return nil, fmt.Errorf("comparing %s with %s: %w", before, after, err)
		}
		if compared.saysTheSame() {
			d.Reworded = append(d.Reworded, name)
			continue
		}
		d.Files = append(d.Files, compared)
	}
	slices.Sort(d.Reworded)
	return d, nil
}

// saysTheSame says whether a file that is other bytes is no other in anything that was compared.
func (d FileDifference) saysTheSame() bool {
	return d.Kind == Changed && d.Role != release.RoleOther && !d.Unread && len(d.Variables)+len(d.Objects) == 0
}

// fileNames returns the files of two releases that are neither metadata nor components.
func fileNames(before, after *release.Release) []string {
	names := map[string]bool{}
	for _, r := range []*release.Release{before, after} {
		for _, f := range r.Files {
			if role := r.Role(f.Name); role != release.RoleComponents && role != release.RoleMetadata {
				names[f.Name] = true
			}
		}
	}
	return unionKeys(names, nil)
}

// compareMetadata compares the release series.
func (d *Difference) compareMetadata(before, after *release.Release) error {
	old, err := series(before)
	if err != nil {
		return err
	}
	now, err := series(after)
	if err != nil {
		return err
	}
	for _, name := range unionKeys(old, now) {
		if old[name] != now[name] {
			d.Series = append(d.Series, SeriesChange{name, old[name], now[name]})
		}
	}
	d.Contract = FieldChange{Before: contractOf(before), After: contractOf(after)}
	oldFile, _ := before.File(release.MetadataFile)
	newFile, _ := after.File(release.MetadataFile)
	if len(d.Series) == 0 && d.Contract.Before == d.Contract.After && !bytes.Equal(oldFile.Data, newFile.Data) {
		d.Reworded = append(d.Reworded, release.MetadataFile)
	}
	return nil
}

// series returns the contracts of the release series; none where there is no metadata.yaml.
func series(r *release.Release) (map[string]string, error) {
	file, ok := r.File(release.MetadataFile)
	if !ok {
		return nil, nil
	}
	parsed, err := metadata.Parse(file.Name, file.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata of %s: %w", r, err)
	}
	contracts := map[string]string{}
	for _, s := range parsed.Series() {
		contracts[s.String()] = s.Contract
	}
	return contracts, nil
}

// contractOf returns the contract of a release's series, or "".
func contractOf(r *release.Release) string {
	file, ok := r.File(release.MetadataFile)
	if !ok {
		return ""
	}
	parsed, err := metadata.Parse(file.Name, file.Data)
	if err != nil {
		return ""
	}
	s, _ := parsed.SeriesFor(r.Version)
	return s.Contract
}

// compareComponents compares the components YAML.
func (d *Difference) compareComponents(before, after *release.Release) error {
	old, hadFile := before.Components()
	now, hasFile := after.Components()
	if bytes.Equal(old.Data, now.Data) {
		return nil
	}
	oldObjects, err := parse(old, hadFile)
	if err != nil {
		return fmt.Errorf("reading the components of %s: %w", before, err)
	}
	newObjects, err := parse(now, hasFile)
	if err != nil {
		return fmt.Errorf("reading the components of %s: %w", after, err)
	}
	d.Objects, d.Permissions, d.Images = Objects(oldObjects, newObjects), Permissions(oldObjects, newObjects), Images(oldObjects, newObjects)
	d.CRDs = CRDs(contract.ReadCRDs(oldObjects), contract.ReadCRDs(newObjects))
	if d.Variables, err = fileVariables(old, now); err != nil {
		return err
	}
	if len(d.Objects)+len(d.Permissions)+len(d.Images)+len(d.CRDs)+len(d.Variables) == 0 {
		d.Reworded = append(d.Reworded, now.Name)
	}
	return nil
}

// errNotSet is what the processor hears of a variable that nobody set.
var errNotSet = errors.New("not set")

// parse reads the objects of a file; where that needs its variables replaced, with their defaults.
func parse(f release.File, there bool) ([]*manifest.Document, error) {
	if !there {
		return nil, nil
	}
	documents, err := manifest.Parse(f.Name, f.Data)
	if err == nil {
		return documents, nil
	}
	rendered, unset := yamlprocessor.NewSimpleProcessor().Process(f.Data, func(string) (string, error) { return "", errNotSet })
	if unset != nil {
		return nil, err
	}
	if documents, again := manifest.Parse(f.Name, rendered); again == nil {
		return documents, nil
	}
	return nil, err
}

// compareFile compares a template, a class definition or another file.
func compareFile(r *release.Release, before, after release.File, was, is bool) (FileDifference, error) {
	name := after.Name
	if !is {
		name = before.Name
	}
	d := FileDifference{Name: name, Role: r.Role(name), Kind: Changed}
	switch d.Role {
	case release.RoleClusterTemplate:
		d.Title, _ = release.Flavor(name)
	case release.RoleClusterClass:
		d.Title, _ = release.ClusterClassName(name)
	}
	switch {
	case !was:
		d.Kind = Added
	case !is:
		d.Kind = Removed
	}
	if d.Role == release.RoleOther || d.Kind == Removed {
		return d, nil
	}
	var err error
	if d.Variables, err = fileVariables(before, after); err != nil || d.Kind == Added {
		return d, err
	}
	old, oldErr := parse(before, was)
	now, newErr := parse(after, is)
	if d.Unread = oldErr != nil || newErr != nil; !d.Unread {
		d.Objects = objects(old, now, wholly)
	}
	return d, nil
}

// fileVariables compares the variables of a file.
func fileVariables(before, after release.File) ([]VariableChange, error) {
	old, err := defaults(before)
	if err != nil {
		return nil, err
	}
	now, err := defaults(after)
	if err != nil {
		return nil, err
	}
	return Variables(after.Name, old, now), nil
}

// defaults returns the variables of a file with their defaults.
func defaults(f release.File) (map[string]*string, error) {
	if len(f.Data) == 0 {
		return nil, nil
	}
	variables, err := templates.Variables(f)
	if err != nil {
		return nil, err
	}
	all := map[string]*string{}
	for _, v := range variables {
		all[v.Name] = v.Default
	}
	return all, nil
}
