package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/gitea"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/github"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/gitlab"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/oci"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Publisher puts releases into one place that clusterctl reads.
type Publisher interface {
	// Plan returns what Publish would change, and changes nothing. Releases that would be refused
	// are in the plan, see Plan.Err; an error means that no plan could be made: a release that
	// clusterctl could not use, or a place that can't be read or is not fit to be published to.
	Plan(ctx context.Context, releases []*release.Release) (*Plan, error)

	// Publish makes the releases available and reads them back through clusterctl's own client.
	// All of them are checked before anything is written. A version is visible whole or not at
	// all; after a failure, or when the process was killed, the same call ends right. Bytes that
	// are published already are left alone. Errors: *ConflictError where other bytes are published
	// for a version, *LockedError where another publisher is at work, *ReadBackError where clusterctl
	// does not get what was published.
	Publish(ctx context.Context, releases []*release.Release) (*Result, error)

	// Previous returns for each release the one that its users upgrade from, nil where there is none:
	// that of Options.Previous or Options.NotesFrom or, without these, the highest version below it, of
	// what is published here and of the releases themselves. For a version without a pre-release part
	// it is one of these. Publish reads none of them again for its notes.
	Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error)

	// Fetch returns a published release. An empty version or "latest" is the one that clusterctl
	// takes when it is asked for none. The error is release.ErrNoRelease where there is no such
	// version.
	Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error)
}

// Options are the choices that hold for every target.
type Options struct {
	// Replace allows other bytes for a version that is published already. It is for
	// pre-releases and 0.0.0 only: any other version is refused all the same.
	Replace bool
	// LockTimeout is how long to wait for another publisher. Zero is one minute.
	LockTimeout time.Duration
	// Progress is told, in a line of text, what takes time, and Report what is waited for longer than a
	// request takes: a server that limits requests or fails. They may be nil.
	Progress, Report func(string)
	// ClusterctlConfig is the path or URL of clusterctl's configuration, as in its flag --config.
	// Empty is clusterctl's default. The target "overrides" reads from it where that folder is.
	ClusterctlConfig string

	// TokenFile is a file with the token for a server. Empty takes it from the environment, by the
	// variables that each target names. No token is needed to read what is public.
	TokenFile string
	// Commit is the commit that a version is tagged at where there is no tag yet; where there is
	// one it has to be of this commit. A release whose build recorded a commit has to be of it too.
	// Empty is the recorded commit or, without one, the commit that a pipeline runs for.
	Commit string
	// Notes are the text of the release on servers that have one, in Markdown.
	Notes string
	// NotesFrom is the release that the notes are made against where Notes is empty, as Read takes it.
	// Empty is Previous or, without that, the highest published version below; NoNotes makes no notes.
	NotesFrom string
	// Previous is the release that users upgrade from, as Read takes it. Empty is NotesFrom or, without
	// that, the highest published version below; NoPrevious is none.
	Previous string
	// Draft leaves it to a person to make a release public, on servers that have drafts.
	Draft bool
	// GitLabRelease makes a release of the project's as well, with links to the files of the package.
	GitLabRelease bool
	// SignKey is a file with the private key that the provenance is signed with; empty signs nothing.
	SignKey string
	// NoProvenance publishes without provenance, whatever a build recorded of the source.
	NoProvenance bool

	// reads has the releases before, once they were read.
	reads *reads
	// Network is what tests put between this package and a server.
	Network transport.Network
	// disk is what tests put between this package and the system.
	disk disk
}

func (o Options) tell(line string) {
	if o.Progress != nil {
		o.Progress(line)
	}
}

// target is one kind of place that releases are published to and read from.
type target struct {
	// form shows the user how such a place is written.
	form string
	// notes says that a release there has a text.
	notes bool
	// drafts and pages say that Options.Draft and Options.GitLabRelease mean something there.
	drafts, pages bool
	// folder says that it is a folder, which needs no token and has no commits and no provenance.
	folder bool
	// matches says whether a text names a place of this kind.
	matches func(text string) bool
	// open returns the publisher of a place; nil where nothing can be published there.
	open func(text string, opts Options) (Publisher, error)
	// read returns the releases at a place; nil where it is nothing to read releases from.
	read func(ctx context.Context, text string, opts Options) ([]found, error)
}

// serverTarget is the target of a kind of store.
func serverTarget(kind store.Kind) target {
	return target{
		form: kind.Form, notes: kind.Texts, drafts: kind.Drafts, pages: kind.Pages, matches: kind.Matches,
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
		read: func(ctx context.Context, text string, opts Options) ([]found, error) {
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

// forStore returns the options that a store is opened with.
func (o Options) forStore() store.Options {
	return store.Options{
		TokenFile: o.TokenFile, Commit: o.Commit, Draft: o.Draft, Pages: o.GitLabRelease,
		Tell: o.Progress, Report: o.Report, Network: o.Network,
	}
}

// targets are all kinds of places; the first that matches is taken.
var targets = []target{
	overridesTarget,
	serverTarget(github.Kind),
	serverTarget(gitlab.Kind),
	serverTarget(gitea.Kind),
	httpsTarget,
	serverTarget(oci.Kind),
	localTarget,
}

// Open returns the publisher for a place, e.g. a repository's root folder. Nothing is read or
// written yet. The error is *TargetError where the text names no kind of place that there is.
func Open(to string, opts Options) (Publisher, error) {
	if opts.LockTimeout == 0 {
		opts.LockTimeout = time.Minute
	}
	opts.reads = &reads{}
	var forms []string
	for _, t := range targets {
		if t.open == nil {
			continue
		}
		if t.matches(to) {
			if opts.GitLabRelease && !t.pages {
				return nil, fmt.Errorf("a release of a project on GitLab (--gitlab-release) is made with a package there, and %s is none: publish to %s", to, gitlab.Kind.Form)
			}
			if opts.Draft && !t.drafts {
				return nil, fmt.Errorf("%s has no drafts (--draft): publish to %s", to, github.Kind.Form)
			}
			if !t.notes && (opts.Notes != "" || opts.NotesFrom != "") {
				return nil, fmt.Errorf("a release in %s has no text: leave the notes out (--notes, --notes-from)", to)
			}
			if err := t.refuseServerOptions(to, opts); err != nil {
				return nil, err
			}
			if opts.Commit != "" && !commitName.MatchString(opts.Commit) {
				return nil, fmt.Errorf("%q is no commit: give its full hash, as git rev-parse HEAD prints it", opts.Commit)
			}
			p, err := t.open(to, opts)
			if err != nil || t.folder {
				return p, err
			}
			return recorded{Publisher: p, opts: opts}, nil
		}
		forms = append(forms, t.form)
	}
	return nil, &TargetError{Text: to, Purpose: "publish to", Forms: forms}
}

// refuseServerOptions returns an error where an option is set that would have no effect in a folder.
func (t target) refuseServerOptions(to string, opts Options) error {
	if !t.folder {
		return nil
	}
	for _, option := range []struct {
		set  bool
		what string
	}{
		{opts.TokenFile != "", "a token (--token-file)"}, {opts.Commit != "", "a commit (--commit)"},
		{opts.SignKey != "", "a signature (--sign-key)"}, {opts.NoProvenance, "--no-provenance"},
	} {
		if option.set {
			return fmt.Errorf("%s is for a server, and %s is a folder: leave it out", option.what, to)
		}
	}
	return nil
}

// Read returns the releases at a location: a version folder (<label>/<version>), a provider's
// folder or a repository's root with everything in it, or clusterctl's own URL of a provider
// (file:///.../<label>/<version or latest>/<components file>, or that as a plain path, or the URLs
// that the targets on servers name). The error is *TargetError where the text names no kind of
// place that releases are read from, and release.ErrNoRelease where there is none.
// Source: clusterctl provider contract, "Creating a local provider repository".
func Read(ctx context.Context, location string) ([]*release.Release, error) {
	return ReadWith(ctx, location, Options{})
}

// ReadWith is Read with options, such as the file with the token for a server.
func ReadWith(ctx context.Context, location string, opts Options) ([]*release.Release, error) {
	all, err := readFound(ctx, location, opts)
	if err != nil {
		return nil, err
	}
	return releasesOf(all), nil
}

// readFound is ReadWith with what lies beside the releases.
func readFound(ctx context.Context, location string, opts Options) ([]found, error) {
	var forms []string
	for _, t := range targets {
		if t.read == nil {
			continue
		}
		if t.matches(location) {
			return t.read(ctx, location, opts)
		}
		forms = append(forms, t.form)
	}
	return nil, &TargetError{Text: location, Purpose: "read releases from", Forms: forms}
}
