package diff

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// Difference is the difference between two releases of a provider.
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
	// Files are the cluster templates, class definitions and others; metadata and components are not among them.
	Files []FileDifference
	// Reworded are files whose bytes differ, without a difference in the compared content.
	Reworded []string
	// Unread are the parts that could not be compared.
	Unread []Unread
}

// Unread is a file, or an object of one, that could not be compared.
type Unread struct {
	// Version is that of the release.
	Version, File string
	// What was not compared, and the error.
	What, Message string
}

// SeriesChange is a release series with its contract; "" where the series is missing.
type SeriesChange struct{ Series, Before, After string }

// FileDifference is the change of a file.
type FileDifference struct {
	Name string
	Role release.Role
	// Title is the flavor's or class' name, or "" for the default flavor and for other files.
	Title string
	Kind  Kind
	// Variables, Objects and Classes are the changes in it; changed variables of ClusterClasses are only in Classes.
	Variables []VariableChange
	Objects   []ObjectChange
	Classes   []ClassChange
	// Unread means that objects were not compared: the file is YAML only after its variables have values.
	Unread bool
}

// Empty reports whether nothing changed.
func (d *Difference) Empty() bool {
	return d.Contract.Before == d.Contract.After && len(d.Series)+len(d.Objects)+len(d.CRDs)+len(d.Permissions)+len(d.Images)+
		len(d.Variables)+len(d.Files)+len(d.Reworded)+len(d.Unread) == 0
}

// Releases compares two releases of one provider. Unreadable metadata and variables of the older release are in Unread,
// because they can't be corrected any more, and the rest is compared. The error is that of unreadable components or of
// an unreadable file of the newer release: a *manifest.SyntaxError, a *metadata.ParseError, or that of clusterctl's
// processor.
func Releases(before, after *release.Release) (*Difference, error) {
	if before.Provider != after.Provider {
		return nil, fmt.Errorf("%s and %s belong to two providers and can't be compared", before, after)
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
		compared, err := d.compareFile(after, old, now)
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

// saysTheSame reports whether a file with other bytes has no compared difference.
func (d FileDifference) saysTheSame() bool {
	return d.Kind == Changed && d.Role != release.RoleOther && !d.Unread && len(d.Variables)+len(d.Objects)+len(d.Classes) == 0
}

// fileNames returns the files of two releases that are neither metadata nor components.
func fileNames(before, after *release.Release) []string {
	names := sets.New[string]()
	for _, r := range []*release.Release{before, after} {
		for _, f := range r.Files {
			if role := r.Role(f.Name); role != release.RoleComponents && role != release.RoleMetadata {
				names.Insert(f.Name)
			}
		}
	}
	return sets.List(names)
}

// compareMetadata compares the release series.
func (d *Difference) compareMetadata(before, after *release.Release) error {
	now, err := readMetadata(after)
	if err != nil {
		return err
	}
	old, err := readMetadata(before)
	if err != nil {
		d.unread(release.MetadataFile, "contract and release series", err)
		return nil
	}
	oldSeries, newSeries := seriesOf(old), seriesOf(now)
	for _, s := range slices.SortedFunc(maps.Keys(union(oldSeries, newSeries)), olderSeries) {
		if oldSeries[s] != newSeries[s] {
			name := metadata.Series{Major: s.major, Minor: s.minor}.String()
			d.Series = append(d.Series, SeriesChange{name, oldSeries[s], newSeries[s]})
		}
	}
	d.Contract = FieldChange{Before: contractOf(old, before), After: contractOf(now, after)}
	// Another contract needs another version of Cluster API.
	d.Contract.Breaks = narrowsIf(d.Contract.Before != "" && d.Contract.Before != d.Contract.After, Perhaps)
	oldFile, _ := before.File(release.MetadataFile)
	newFile, _ := after.File(release.MetadataFile)
	if len(d.Series) == 0 && d.Contract.Before == d.Contract.After && !bytes.Equal(oldFile.Data, newFile.Data) {
		d.Reworded = append(d.Reworded, release.MetadataFile)
	}
	return nil
}

// unread records an unreadable file of the older release, with the parts that are not compared.
func (d *Difference) unread(file, what string, err error) {
	d.Unread = append(d.Unread, Unread{Version: d.Before, File: file, What: what, Message: err.Error()})
}

// readMetadata reads the metadata.yaml of a release; nil is none.
func readMetadata(r *release.Release) (*metadata.File, error) {
	file, ok := r.File(release.MetadataFile)
	if !ok {
		return nil, nil
	}
	parsed, err := metadata.Parse(file.Name, file.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata of %s: %w", r, err)
	}
	return parsed, nil
}

// seriesKey identifies a release series.
type seriesKey struct{ major, minor int32 }

// olderSeries sorts release series by their versions.
func olderSeries(a, b seriesKey) int {
	return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.minor, b.minor))
}

// seriesOf returns the contracts of the release series; none if there is no metadata.yaml.
func seriesOf(f *metadata.File) map[seriesKey]string {
	contracts := map[seriesKey]string{}
	if f == nil {
		return contracts
	}
	for _, s := range f.Series() {
		contracts[seriesKey{s.Major, s.Minor}] = s.Contract
	}
	return contracts
}

// contractOf returns the contract of a release's series, or "".
func contractOf(f *metadata.File, r *release.Release) string {
	if f == nil {
		return ""
	}
	s, _ := f.SeriesFor(r.Version)
	return s.Contract
}

// compareComponents compares the components YAML.
func (d *Difference) compareComponents(before, after *release.Release) error {
	old, _ := before.Components()
	now, _ := after.Components()
	if bytes.Equal(old.Data, now.Data) {
		return nil
	}
	newObjects, err := parse(now)
	if err != nil {
		return fmt.Errorf("reading the components of %s: %w", after, err)
	}
	if d.Variables, err = d.fileVariables(old, now); err != nil {
		return err
	}
	oldObjects, err := parse(old)
	if err != nil {
		return fmt.Errorf("reading the components of %s: %w", before, err)
	}
	oldCRDs, newCRDs, oldObjects, newObjects := definitions(oldObjects, newObjects)
	d.CRDs, d.Objects = CRDs(oldCRDs, newCRDs), objects(oldObjects, newObjects, comparedFields)
	d.Permissions, d.Images = Permissions(oldObjects, newObjects), Images(oldObjects, newObjects)
	if len(d.Objects)+len(d.Permissions)+len(d.Images)+len(d.CRDs)+len(d.Variables) == 0 {
		d.Reworded = append(d.Reworded, now.Name)
	}
	return nil
}

// parse reads the objects of a file; if necessary, it replaces the variables by their defaults. A missing file has no
// name and no objects.
func parse(f release.File) ([]*manifest.Document, error) {
	documents, err := manifest.Parse(f.Name, f.Data)
	if err == nil {
		return documents, nil
	}
	if rendered, ok := templates.WithDefaults(f.Data); ok {
		if documents, again := manifest.Parse(f.Name, rendered); again == nil {
			return documents, nil
		}
	}
	return nil, err
}

// compareFile compares a template, a class definition or another file. A missing file has no name.
func (d *Difference) compareFile(r *release.Release, before, after release.File) (FileDifference, error) {
	name := cmp.Or(after.Name, before.Name)
	f := FileDifference{Name: name, Role: r.Role(name), Kind: Changed}
	switch f.Role {
	case release.RoleClusterTemplate:
		f.Title, _ = release.Flavor(name)
	case release.RoleClusterClass:
		f.Title, _ = release.ClusterClassName(name)
	}
	switch {
	case before.Name == "":
		f.Kind = Added
	case after.Name == "":
		f.Kind = Removed
	}
	if f.Role == release.RoleOther || f.Kind == Removed {
		return f, nil
	}
	var err error
	if f.Variables, err = d.fileVariables(before, after); err != nil || f.Kind == Added {
		return f, err
	}
	old, oldErr := parse(before)
	now, newErr := parse(after)
	if f.Unread = oldErr != nil || newErr != nil; !f.Unread {
		f.Objects, f.Classes = objects(old, now, withoutClassVariables), classes(old, now)
	}
	return f, nil
}

// fileVariables compares the variables of a file.
func (d *Difference) fileVariables(before, after release.File) ([]VariableChange, error) {
	now, err := defaults(after)
	if err != nil {
		return nil, err
	}
	old, err := defaults(before)
	if err != nil {
		d.unread(before.Name, "variables", err)
		return nil, nil
	}
	return Variables(after.Name, old, now), nil
}

// defaults returns the variables of a file with their defaults.
func defaults(f release.File) (map[string]*string, error) {
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
