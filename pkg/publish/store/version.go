package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"golang.org/x/oauth2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/git"
	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// ChecksumsFile is published with the files of a release on a server: it contains the SHA-256 of each, in the
	// format of the program sha256sum.
	ChecksumsFile = "SHA256SUMS"
	// ProvenanceFile contains the source of the files, if their build recorded it.
	ProvenanceFile = provenance.File
)

// Version is one version of a server's repository: the files of all providers that are released under that version,
// each name once.
type Version struct {
	Number   string
	Releases []*release.Release
	// Files are sorted by name and unique.
	Files []release.File
	// All are Files with the generated files, see Generate; the first is SHA256SUMS.
	All []release.File
	// Text is the version's title and text.
	Text Text
}

// Versions groups releases by their versions, the lowest version first. It is an error if two providers of a version
// have files with one name but other bytes: a version on a server is flat.
func Versions(releases []*release.Release) ([]*Version, error) {
	var (
		all      []*Version
		problems []error
	)
	for _, r := range releases {
		i := slices.IndexFunc(all, func(v *Version) bool { return v.Number == r.Version })
		if i < 0 {
			all = append(all, &Version{Number: r.Version})
			i = len(all) - 1
		}
		if err := all[i].add(r); err != nil {
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, v := range all {
		slices.SortFunc(v.Files, func(x, y release.File) int { return strings.Compare(x.Name, y.Name) })
	}
	slices.SortStableFunc(all, func(x, y *Version) int { return Compare(x.Number, y.Number) })
	return all, nil
}

func (v *Version) add(r *release.Release) error {
	var problems []error
	for _, f := range r.Files {
		if Generated(f.Name) {
			problems = append(problems, fmt.Errorf("%s has a file %s: a file of that name is made when it is published; take it out of the release", r, f.Name))
			continue
		}
		other, ok := v.File(f.Name)
		if ok && !bytes.Equal(other.Data, f.Data) {
			problems = append(problems, fmt.Errorf("%s and %s both have a file %s, with other bytes: they are published to one place, where each name exists once: give one of them another name, or publish them to places of their own",
				v.Owner(f.Name), r, f.Name))
		}
		if !ok {
			v.Files = append(v.Files, f)
		}
	}
	v.Releases = append(v.Releases, r)
	return errors.Join(problems...)
}

// File returns the file of that name, or false.
func (v *Version) File(name string) (release.File, bool) {
	for _, f := range v.Files {
		if f.Name == name {
			return f, true
		}
	}
	return release.File{}, false
}

// Owner returns the first release with a file of that name, or, for generated files, the first release.
func (v *Version) Owner(name string) *release.Release {
	for _, r := range v.Releases {
		if _, ok := r.File(name); ok {
			return r
		}
	}
	return v.Releases[0]
}

// Reads reports whether clusterctl would read a file of that name for a provider of the version.
func (v *Version) Reads(name string) bool {
	return slices.ContainsFunc(v.Releases, func(r *release.Release) bool { return r.Role(name) != release.RoleOther })
}

// Checksums returns the file SHA256SUMS of the version's files.
func (v *Version) Checksums() release.File {
	var b strings.Builder
	for _, f := range v.Files {
		fmt.Fprintf(&b, "%s  %s\n", release.Digest(f.Data), f.Name)
	}
	return release.File{Name: ChecksumsFile, Data: []byte(b.String())}
}

// Generate sets All to Files with the checksums and, if the source is known, the provenance, which is signed if a key
// file is given.
func (v *Version) Generate(ctx context.Context, signKey string) error {
	v.All = append([]release.File{v.Checksums()}, v.Files...)
	source := v.Source()
	if source == nil {
		return nil
	}
	statement, err := provenance.New(ctx, v.Number, v.Files, source, signKey)
	v.All = append(v.All, statement)
	return err
}

// Releases returns the releases of versions, in their order.
func Releases(all []*Version) []*release.Release {
	var releases []*release.Release
	for _, v := range all {
		releases = append(releases, v.Releases...)
	}
	return releases
}

// Generated reports whether publishing generates a file of that name. Published releases are compared without these
// files.
func Generated(name string) bool {
	return name == ChecksumsFile || name == ProvenanceFile
}

// Compare orders versions as semantic versions; invalid ones come first.
func Compare(a, b string) int { return semver.Compare(a, b) }

// Stable reports whether a version has no pre-release part.
func Stable(version string) bool {
	v, err := release.ParseVersion(version)
	return err == nil && v.PreRelease() == ""
}

// Highest returns the highest of the fitting versions, or "".
func Highest(versions []string, fits func(version string) bool) string {
	highest := ""
	for _, v := range versions {
		if fits(v) && Compare(v, highest) > 0 {
			highest = v
		}
	}
	return highest
}

// MediaType returns the media type for uploading a file.
func MediaType(name string) string {
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		return "application/yaml"
	}
	return "application/octet-stream"
}

// Replaceable reports whether a version may be published again with other bytes: pre-releases and 0.0.0, which are not
// final.
func Replaceable(text string) bool {
	v, err := release.ParseVersion(text)
	if err != nil {
		return false
	}
	return v.PreRelease() != "" || v.Major() == 0 && v.Minor() == 0 && v.Patch() == 0
}

// Newest reports whether this release is clusterctl's default version, among those of the same provider: the highest
// final one, or the highest pre-release if there are no final ones.
func Newest(releases []*release.Release, r *release.Release) bool {
	return !slices.ContainsFunc(releases, func(other *release.Release) bool {
		if other.Provider != r.Provider || Stable(other.Version) != Stable(r.Version) {
			return other.Provider == r.Provider && Stable(other.Version)
		}
		return Compare(other.Version, r.Version) > 0
	})
}

// Source returns the source of the releases of a version, or nil if one of them has no record.
func (v *Version) Source() *release.Source {
	for _, r := range v.Releases {
		if r.Source == nil {
			return nil
		}
	}
	return v.Releases[0].Source
}

// CommitToTag returns the commit to tag a version at in a place, or "" if the tag already exists at the commit tagged.
// The commit is the recorded one or, without a record, the user's or the pipeline's. It is an error if the tag is at
// another commit, or if the commit is the merge of a request, which no branch contains.
func (o Options) CommitToTag(v *Version, place, tagged, pipeline string) (string, error) {
	commit, builtFrom := o.Commit, "Options.Commit names"
	if source := v.Source(); source != nil {
		commit, builtFrom = source.Commit, "the release was built from"
	}
	if commit == "" && tagged == "" {
		commit = pipeline
	}
	switch {
	case tagged != "" && commit != "" && !strings.EqualFold(commit, tagged):
		return "", fmt.Errorf("the tag %s of %s is of the commit %s, and %s %s: publish what was built from the tag, or another version", v.Number, place, tagged, builtFrom, commit)
	case tagged != "":
		return "", nil
	case commit == "":
		return "", fmt.Errorf("%s has no tag %s: push the tag first, or name the commit to tag (Options.Commit)", place, v.Number)
	}
	if ref := mergeRefOf(commit, v.Source()); ref != "" {
		return "", fmt.Errorf("%s has no tag %s, and the commit %s can't be tagged: it is the merge that the server made for %s, and no branch keeps it: build and publish from a branch or a tag", place, v.Number, commit, ref)
	}
	return commit, nil
}

// mergeRefOf returns the ref of the pull or merge request with a merge commit, or "".
// Source: GitHub docs, "Variables reference", GITHUB_REF and GITHUB_SHA; GitLab docs, "Predefined CI/CD
// variables", CI_MERGE_REQUEST_REF_PATH and CI_COMMIT_SHA.
func mergeRefOf(commit string, source *release.Source) string {
	if source != nil && source.MergeRef != "" {
		return source.MergeRef
	}
	for _, run := range [][2]string{{"GITHUB_REF", "GITHUB_SHA"}, {"CI_MERGE_REQUEST_REF_PATH", "CI_COMMIT_SHA"}} {
		if ref := os.Getenv(run[0]); git.IsMergeRef(ref) && strings.EqualFold(commit, os.Getenv(run[1])) {
			return ref
		}
	}
	return ""
}

// ParseURL parses a URL on a server. variable is the variable for a token, if the URL contains one.
func ParseURL(text, what, variable string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the URL of %s: %w", what, err)
	}
	if u.User != nil {
		return nil, fmt.Errorf("the URL of %s has a user or password in it: take it out, and put the token into %s or a file for Options.TokenFile", what, variable)
	}
	return u, nil
}

// CheckNames returns an error for each file whose name a server does not accept.
func CheckNames(all []*Version, server string, taken *regexp.Regexp) []error {
	var problems []error
	for _, v := range all {
		for _, f := range v.Files {
			if !taken.MatchString(f.Name) {
				problems = append(problems, fmt.Errorf("%s: %s takes no file %q: use letters, digits, '.', '-', '_' and '+' only", v.Owner(f.Name), server, f.Name))
			}
		}
	}
	return problems
}

// NewRepository is one of clusterctl's constructors of a repository client.
type NewRepository func(context.Context, config.Provider, config.VariablesClient) (repository.Repository, error)

// ClusterctlClient returns clusterctl's own client for a repository on a server. clusterctl reads the token from its
// variable; it is sent only to the credential's hosts.
func ClusterctlClient(ctx context.Context, newClient NewRepository, at, variable string, c transport.Credential) (repository.Repository, error) {
	variables := map[string]string{}
	if c.Secret != "" {
		variables[variable] = c.Secret
	}
	configuration, err := release.ClusterctlConfig(ctx, variables)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: transport.Guarded(c), Timeout: transport.AttemptTime})
	// The provider's name and type are not used.
	return newClient(ctx, config.NewProvider("read-back", at, release.ProviderTypes()[0]), configuration.Variables())
}

// Reader returns a function that reads the files of a version through clusterctl's own client.
func (o Options) Reader(version string, urlOf func(version, file string) string, client func() (repository.Repository, error)) (func(ctx context.Context, name string) ([]byte, error), error) {
	if read := o.Network.ReadFile; read != nil {
		return func(ctx context.Context, name string) ([]byte, error) { return read(ctx, urlOf(version, name), name) }, nil
	}
	c, err := client()
	return func(ctx context.Context, name string) ([]byte, error) { return c.GetFile(ctx, version, name) }, err
}

// ReadToken returns the secret in a file, or in the first variable that is set, or "" without either. The error for an
// invalid token, such as one with a line break, does not show the token.
func ReadToken(file string, variables ...string) (string, error) {
	token, from := "", ""
	if file != "" {
		data, err := os.ReadFile(file) //nolint:gosec // the user names the file
		if err != nil {
			return "", fmt.Errorf("reading the token: %w", err)
		}
		if len(data) > 1<<16 {
			return "", fmt.Errorf("the token file %s has %d bytes: it has to hold a token and nothing else", file, len(data))
		}
		token, from = strings.TrimSpace(string(data)), "the file "+file
		if token == "" {
			return "", fmt.Errorf("the token file %s is empty", file)
		}
	}
	for _, name := range variables {
		if token == "" {
			token, from = strings.TrimSpace(os.Getenv(name)), name
		}
	}
	if token == "" {
		return "", nil
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("the token in %s has characters that no token has, such as spaces or line breaks in it: put the token there and nothing else", from)
	}
	return token, nil
}

// Entries returns an entry for each provider of versions, with the URL of its components, each once.
func Entries(releases []*release.Release, url func(r *release.Release) string) []Entry {
	var entries []Entry
	for _, r := range releases {
		entry := Entry{Name: r.Provider.Name, Type: r.Provider.Type, URL: url(r)}
		if !slices.Contains(entries, entry) {
			entries = append(entries, entry)
		}
	}
	return entries
}

func (e Entry) String() string { return fmt.Sprintf("%s (%s)", e.Name, e.Type) }
