// Package publish copies releases to places from which clusterctl reads them, and reads them back.
//
// A Publisher is one place, and each kind of place is one line in the list targets (publish.go). A kind of server is a
// store.Store in its own folder: server.go publishes to it, plan.go compares, and server_read.go reads. In a folder, a
// version becomes visible as a whole: it is staged in the same file system, synced and renamed (folder.go), and every
// call that changes the disk is in disk.go.
package publish

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/gitea"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/github"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/gitlab"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/oci"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Publisher publishes releases to one place that clusterctl reads.
type Publisher interface {
	// Plan returns the changes that Publish would make, and changes nothing. Refused releases are in the plan, see
	// Plan.Err. The error means that no plan could be made: clusterctl could not use a release, or the place can't be
	// read or is unsuitable.
	Plan(ctx context.Context, releases []*release.Release) (*Plan, error)

	// Publish publishes the releases and reads them back through clusterctl's own client. It checks all of them before
	// it writes. A version becomes visible as a whole; after a failure, or if the process was killed, the same call
	// completes the work. It leaves bytes unchanged that are already published. Errors: *ConflictError if a version is
	// published with other bytes, *LockedError if another publisher is active, *ReadBackError if clusterctl does not
	// get the published bytes.
	Publish(ctx context.Context, releases []*release.Release) (*Result, error)

	// Previous returns for each release the one from which its users upgrade, nil if there is none: that of
	// Options.Previous or Options.NotesFrom or, without these, the highest lower version of the releases that are
	// published here and of the releases themselves; for a final version, pre-releases are skipped. Publish
	// does not read them again for its notes.
	Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error)

	// Fetch returns a published release. An empty version or "latest" is clusterctl's default version. The error is
	// release.ErrNoRelease if the version does not exist.
	Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error)
}

// Options are the choices for all targets.
type Options struct {
	// Replace allows other bytes for a version that is already published. It applies only to pre-releases and 0.0.0:
	// any other version is still refused.
	Replace bool
	// LockTimeout is the time to wait for another publisher. Zero is one minute.
	LockTimeout time.Duration
	// Progress receives a line of text for each slow step, and Report for each wait that is longer than a request: for
	// a server that limits requests or fails. They may be nil.
	Progress, Report func(string)
	// ClusterctlConfig is the path or URL of clusterctl's configuration, as in its flag --config. Empty is clusterctl's
	// default. The target "overrides" reads the path of its folder from it.
	ClusterctlConfig string

	// TokenFile is a file with the token for a server. If it is empty, the token comes from the variables that each
	// target names. Reading public releases needs no token.
	TokenFile string
	// Commit is the commit to tag a version at if the tag does not exist; an existing tag has to be at this commit. A
	// release with a recorded commit has to be of this commit as well. Empty is the recorded commit or, without one,
	// that of the pipeline.
	Commit string
	// Notes are the text of the release on servers that have one, in Markdown.
	Notes string
	// NotesFrom is the release with which the notes compare if Notes is empty, as Read accepts it. Empty is Previous
	// or, without that, the highest lower published version; NoNotes creates no notes.
	NotesFrom string
	// Previous is the release from which users upgrade, as Read accepts it. Empty is NotesFrom or, without that, the
	// highest lower published version; NoPrevious is none.
	Previous string
	// Draft leaves a release as a draft, on servers that have drafts, for a person to publish.
	Draft bool
	// GitLabRelease also creates a release of the project, with links to the files of the package.
	GitLabRelease bool
	// SignKey is a file with the private key for signing the provenance; empty means unsigned.
	SignKey string
	// NoProvenance publishes without provenance, whatever source a build recorded.
	NoProvenance bool

	// reads caches the previous releases.
	reads reads
	// Network is the network that tests replace.
	Network transport.Network
	// disk is the disk that tests replace.
	disk disk
}

func (o Options) tell(line string) {
	if o.Progress != nil {
		o.Progress(line)
	}
}

// target is one kind of place for published releases.
type target struct {
	// Kind describes the form of such a place, and the features of its releases.
	store.Kind
	// folder means that it is a folder, which needs no token and has no commits and no provenance.
	folder bool
	// open returns the publisher of a place; nil if the place is only for reading.
	open func(text string, opts Options) (Publisher, error)
	// read returns the releases at a place.
	read func(ctx context.Context, text string, opts Options) ([]readRelease, error)
}

// serverTarget returns the target for a kind of store.
func serverTarget(kind store.Kind) target {
	return target{
		Kind: kind,
		open: func(text string, opts Options) (Publisher, error) {
			s, at, err := kind.Open(text, opts.forStore())
			if err == nil && at != (store.At{}) {
				err = fmt.Errorf("%q is more than a repository: publish to %s", text, s.URL())
			}
			if err != nil {
				return nil, err
			}
			return &server{store: s, texts: kind.Texts && !kind.Pages, opts: opts}, nil
		},
		read: func(ctx context.Context, text string, opts Options) ([]readRelease, error) {
			s, at, err := kind.Open(text, opts.forStore())
			if err != nil {
				return nil, err
			}
			if at.Version == "" {
				return nil, fmt.Errorf("%q names no release: write %s%s", text, s.URL(), kind.ReadForm)
			}
			return (&server{store: s, opts: opts}).read(ctx, at.Version, at.File)
		},
	}
}

// forStore returns the options for opening a store.
func (o Options) forStore() store.Options {
	return store.Options{
		TokenFile: o.TokenFile, Commit: o.Commit, Draft: o.Draft, Pages: o.GitLabRelease,
		Tell: o.tell, Report: o.Report, Network: o.Network,
	}
}

// targets are all kinds of places; the first match counts.
var targets = []target{
	serverTarget(github.Kind),
	serverTarget(gitlab.Kind),
	serverTarget(gitea.Kind),
	httpsTarget,
	serverTarget(oci.Kind),
	overridesTarget,
	localTarget,
}

// targetOf returns the target of a text, among those that are fit for a purpose.
func targetOf(text, purpose string, fit func(target) bool) (target, error) {
	var forms []string
	for _, t := range targets {
		if !fit(t) {
			continue
		}
		if t.Matches(text) {
			return t, nil
		}
		forms = append(forms, t.Form)
	}
	return target{}, &TargetError{Text: text, Purpose: purpose, Forms: forms}
}

// Open returns the publisher for a place, e.g. a repository's root folder. It neither reads nor writes. The error is
// *TargetError if the text names no known kind of place.
func Open(to string, opts Options) (Publisher, error) {
	if opts.LockTimeout == 0 {
		opts.LockTimeout = time.Minute
	}
	opts.reads = reads{}
	t, err := targetOf(to, "publish to", func(t target) bool { return t.open != nil })
	if err == nil {
		err = t.refuse(to, opts)
	}
	if err != nil {
		return nil, err
	}
	if opts.Commit != "" && !commitName.MatchString(opts.Commit) {
		return nil, fmt.Errorf("%q isn't a commit: give its full hash, as git rev-parse HEAD prints it", opts.Commit)
	}
	// The notes compare with the release from which upgrades are checked, and vice versa, unless the user names both.
	previous, notesFrom := opts.Previous, opts.NotesFrom
	if previous == "" && notesFrom != NoNotes {
		opts.Previous = notesFrom
	}
	if notesFrom == "" && previous != NoPrevious {
		opts.NotesFrom = previous
	}
	return t.open(to, opts)
}

// refuse returns an error if an option is set that has no effect at a place of this kind.
func (t target) refuse(to string, opts Options) error {
	const forServers = "%s is a folder, and %s is for a server: leave it out"
	for _, option := range []struct {
		set, applies bool
		why          string
	}{
		{opts.GitLabRelease, t.Pages, fmt.Sprintf("a release of a project on GitLab (Options.GitLabRelease) is created with a package of the project, and %s is not one: publish to %s", to, gitlab.Kind.Form)},
		{opts.Draft, t.Drafts, fmt.Sprintf("%s has no drafts (Options.Draft): publish to %s", to, github.Kind.Form)},
		{opts.Notes != "" || opts.NotesFrom != "", t.Texts, fmt.Sprintf("a release in %s has no text: leave the notes out (Options.Notes, Options.NotesFrom)", to)},
		{opts.TokenFile != "", !t.folder, fmt.Sprintf(forServers, to, "a token (Options.TokenFile)")},
		{opts.Commit != "", !t.folder, fmt.Sprintf(forServers, to, "a commit (Options.Commit)")},
		{opts.SignKey != "", !t.folder, fmt.Sprintf(forServers, to, "a signature (Options.SignKey)")},
		{opts.NoProvenance, !t.folder, fmt.Sprintf(forServers, to, "Options.NoProvenance")},
	} {
		if option.set && !option.applies {
			return errors.New(option.why)
		}
	}
	return nil
}

// Read returns the releases at a location: a version folder (<label>/<version>), a provider's folder or a repository's
// root with all releases in it, or clusterctl's own URL of a provider (file:///.../<label>/<version or
// latest>/<components file>, or that as a plain path, or the URLs that the targets on servers name). The error is
// *TargetError if the text names no known kind of place, and release.ErrNoRelease if there is no release.
//
// Source: clusterctl provider contract, "Creating a local provider repository".
func Read(ctx context.Context, location string, opts Options) ([]*release.Release, error) {
	all, err := readAll(ctx, location, opts)
	if err != nil {
		return nil, err
	}
	releases := make([]*release.Release, 0, len(all))
	for _, one := range all {
		releases = append(releases, one.release)
	}
	return releases, nil
}

// readAll is Read with the files that publishing added to the releases.
func readAll(ctx context.Context, location string, opts Options) ([]readRelease, error) {
	t, err := targetOf(location, "read releases from", func(target) bool { return true })
	if err != nil {
		return nil, err
	}
	return t.read(ctx, location, opts)
}

// candidates checks releases first, and returns them in their order without duplicates. It is an error if clusterctl
// could not use one of them, or if two have the same provider and version but other bytes.
//
// Source: clusterctl provider contract, "Provider Repositories".
func candidates(releases []*release.Release) ([]*release.Release, error) {
	if len(releases) == 0 {
		return nil, errors.New("there is no release to publish")
	}
	var (
		checked  []*release.Release
		problems []error
	)
	for _, given := range releases {
		r, err := wellFormed(given)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, name := range []string{r.Provider.ComponentsFile(), release.MetadataFile} {
			if _, ok := r.File(name); !ok {
				problems = append(problems, fmt.Errorf("%s has no file %s: clusterctl needs it; add it to the release", r, name))
			}
		}
		twin := ofVersion(checked, r.Provider, r.Version)
		if twin == nil {
			checked = append(checked, r)
			continue
		}
		for _, d := range twin.Differences(r) {
			problems = append(problems, fmt.Errorf("%s is given twice, with other bytes: %s: publish one of them", r, d.File))
		}
	}
	return checked, errors.Join(problems...)
}

// wellFormed returns a release with its files checked and in order.
func wellFormed(given *release.Release) (*release.Release, error) {
	r, err := release.New(given.Provider, given.Version, given.Files)
	if err != nil {
		return nil, fmt.Errorf("checking the release: %w", err)
	}
	r.Source = given.Source
	return r, nil
}

// ofVersion returns the release of a provider and version, or nil.
func ofVersion(releases []*release.Release, provider release.Provider, version string) *release.Release {
	for _, r := range releases {
		if r.Provider == provider && r.Version == version {
			return r
		}
	}
	return nil
}

// commitName matches the full hash of a commit.
var commitName = regexp.MustCompile(`^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`)

// checkSources returns the releases with their claimed sources, and a warning about releases without one. It is an
// error if the record of a build does not match a release.
func (o Options) checkSources(releases []*release.Release) ([]*release.Release, []string, error) {
	if o.SignKey != "" {
		if err := provenance.CheckKey(o.SignKey); err != nil {
			return nil, nil, err
		}
	}
	if o.NoProvenance {
		if o.SignKey != "" {
			return nil, nil, errors.New("without provenance (Options.NoProvenance) there is nothing to sign (Options.SignKey): leave out one of them")
		}
		unclaimed := make([]*release.Release, 0, len(releases))
		for _, r := range releases {
			without := *r
			without.Source = nil
			unclaimed = append(unclaimed, &without)
		}
		return unclaimed, nil, nil
	}
	var problems []error
	var without []string
	first := map[string]*release.Release{} // by version
	for _, r := range releases {
		if r.Source == nil {
			without = append(without, r.String())
			continue
		}
		problems = append(problems, o.checkSource(r))
		if other, ok := first[r.Version]; ok && !other.Source.SameCommit(r.Source) {
			problems = append(problems, fmt.Errorf("%s was built from the commit %s and %s from %s, or by another version of clusterctl-release: they share one provenance; build them together", other, other.Source.Commit, r, r.Source.Commit))
		}
		first[r.Version] = r
	}
	if len(without) == 0 {
		return releases, nil, errors.Join(problems...)
	}
	reason := fmt.Sprintf("no record of the source of %s (%s, which build writes in a git repository)", strings.Join(without, ", "), release.SourceFile)
	if o.SignKey != "" {
		problems = append(problems, fmt.Errorf("there is a key to sign with, and nothing to sign: there is %s", reason))
	}
	return releases, []string{"published without provenance: there is " + reason}, errors.Join(problems...)
}

// checkSource returns an error if the recorded source of a release can't be claimed.
func (o Options) checkSource(r *release.Release) error {
	const orElse = "build it again, or publish it without provenance (Options.NoProvenance), so that nobody can tell which commit it comes from"
	if changed := r.ChangedSinceBuild(); len(changed) > 0 {
		texts := make([]string, 0, len(changed))
		for _, d := range changed {
			texts = append(texts, d.File+sinceBuild[d.Kind])
		}
		return fmt.Errorf("%s is not what was built from the commit %s: %s: %s", r, r.Source.Commit, strings.Join(texts, "; "), orElse)
	}
	if r.Source.Modified {
		return fmt.Errorf("%s was built from a tree with changes that are not in the commit %s: commit them, and %s", r, r.Source.Commit, orElse)
	}
	if o.Commit != "" && !strings.EqualFold(o.Commit, r.Source.Commit) {
		return fmt.Errorf("%s was built from the commit %s, and not from %s (Options.Commit): leave that out, or build what it names", r, r.Source.Commit, o.Commit)
	}
	return nil
}
