package publish

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// NoPrevious as Options.Previous means that a release has no previous one.
	NoPrevious = "none"
	// previousTime is the time limit for reading the previous release.
	previousTime = 2 * time.Minute
)

// history is the source of the releases that a place already has.
type history struct {
	// place is the URL or folder of the place.
	place string
	// versions returns the versions that are public there.
	versions func(ctx context.Context, provider release.Provider) ([]string, error)
	// fetch returns the public release of a provider for a version; the error is release.ErrNoRelease if there is none.
	fetch func(ctx context.Context, provider release.Provider, version string) (*release.Release, error)
}

// reads is a cache of releases; nil caches nothing.
type reads map[string][]*release.Release

func (r reads) get(key string, read func() ([]*release.Release, error)) ([]*release.Release, error) {
	if releases, ok := r[key]; ok {
		return releases, nil
	}
	releases, err := read()
	if err == nil && r != nil {
		r[key] = releases
	}
	return releases, err
}

// PreviousAt returns for each release the previous one at a location, as Read accepts it: the release of the same
// provider or, of several versions, the highest lower one. It is nil for a provider without one there, and an error if
// no provider has one.
func PreviousAt(ctx context.Context, location string, releases []*release.Release, opts Options) ([]*release.Release, error) {
	there, err := opts.reads.get(location, func() ([]*release.Release, error) { return Read(ctx, location, opts) })
	if err != nil {
		return nil, err
	}
	previous, found := make([]*release.Release, len(releases)), false
	for i, r := range releases {
		previous[i] = before(there, r)
		found = found || previous[i] != nil
	}
	if !found && len(releases) > 0 {
		return nil, fmt.Errorf("%s has no release before %s: it has %s", location, releases[0], listText(there))
	}
	return previous, nil
}

// PreviousInFolder returns for each release the highest lower version in dir/<label>/, to which a build writes it. It
// is nil if there is none.
func PreviousInFolder(ctx context.Context, dir string, releases []*release.Release) ([]*release.Release, error) {
	p, err := openLocal(dir, Options{})
	if err != nil {
		return nil, err
	}
	return p.Previous(ctx, releases)
}

// before returns the previous release from a list: the only one of its provider, or that of the highest lower version.
func before(all []*release.Release, r *release.Release) *release.Release {
	var (
		own      []*release.Release
		versions []string
	)
	for _, other := range all {
		if other.Provider == r.Provider {
			own, versions = append(own, other), append(versions, other.Version)
		}
	}
	if len(own) == 1 {
		return own[0]
	}
	return ofVersion(own, r.Provider, versionBefore(versions, r.Version))
}

func listText(releases []*release.Release) string {
	texts := make([]string, 0, len(releases))
	for _, r := range releases {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ", ")
}

// previous returns for each release the one from which its users upgrade, nil if there is none. The checks of an
// upgrade and the notes compare with it. The location is the one that the user named; without one, it is the highest
// lower version of the public releases at a place and of the releases themselves; for a final version, pre-releases are
// skipped.
func (o Options) previous(ctx context.Context, location string, releases []*release.Release, from history) ([]*release.Release, error) {
	ctx, cancel := context.WithTimeout(ctx, previousTime)
	defer cancel()
	if location != "" {
		if !sameServer(location, from.place) {
			o.TokenFile = "" // it is for the server of publication
		}
		return PreviousAt(ctx, location, releases, o)
	}
	previous := make([]*release.Release, len(releases))
	for i, r := range releases {
		versions, err := from.versions(ctx, r.Provider)
		if err != nil {
			return nil, err
		}
		for _, other := range releases {
			if other.Provider == r.Provider {
				versions = append(versions, other.Version)
			}
		}
		version := versionBefore(versions, r.Version)
		if version == "" {
			continue
		}
		if previous[i] = ofVersion(releases, r.Provider, version); previous[i] != nil {
			continue
		}
		read, err := o.reads.get(r.Provider.Label()+" "+version, func() ([]*release.Release, error) {
			one, err := from.fetch(ctx, r.Provider, version)
			return []*release.Release{one}, err
		})
		if errors.Is(err, release.ErrNoRelease) {
			continue // a provider that is new
		}
		if err != nil {
			return nil, err
		}
		previous[i] = read[0]
	}
	return previous, nil
}

// checkedAgainst implements Publisher.Previous for a place.
func (o Options) checkedAgainst(ctx context.Context, releases []*release.Release, from history) ([]*release.Release, error) {
	if o.Previous == NoPrevious {
		return make([]*release.Release, len(releases)), nil
	}
	o.tell("reading the previous release")
	return o.previous(ctx, o.Previous, releases, from)
}

// versionBefore returns the highest lower version, or "".
func versionBefore(versions []string, version string) string {
	return store.Highest(versions, func(v string) bool {
		_, err := release.ParseVersion(v)
		return err == nil && (store.Stable(v) || !store.Stable(version)) && store.Compare(v, version) < 0
	})
}

// sameServer reports whether two URLs have the same server.
func sameServer(a, b string) bool {
	x, xErr := url.Parse(a)
	y, yErr := url.Parse(b)
	return xErr == nil && yErr == nil && x.Host != "" && x.Scheme == y.Scheme && strings.EqualFold(x.Host, y.Host)
}

const (
	// NoNotes as Options.NotesFrom creates no notes.
	NoNotes = "none"
	// maxNotes is the maximum number of characters in the text of a release. GitLab allows more.
	// Source: GitHub answers "body is too long (maximum is 125000 characters)": ncipollo/release-action issue 493.
	maxNotes = 125000
	// notesRoom is reserved for the mark of a draft.
	notesRoom = 500
)

// checkNotes refuses the user's notes if a server would not accept them.
func (o Options) checkNotes() error {
	if n := len([]rune(o.Notes)); n > maxNotes-notesRoom {
		return fmt.Errorf("the notes have %d characters, and a release takes %d: shorten them, or put a link to them", n, maxNotes-notesRoom)
	}
	return nil
}

// errNoneBefore means that no release exists with which notes could compare.
var errNoneBefore = errors.New("these providers have no earlier release")

// notes compares a version with the previous release.
func (o Options) notes(ctx context.Context, v *store.Version, from history) (string, error) {
	previous, err := o.previous(ctx, o.NotesFrom, v.Releases, from)
	if err != nil {
		return "", err
	}
	before := slices.DeleteFunc(previous, func(r *release.Release) bool { return r == nil })
	differences, err := diff.Sets(before, v.Releases)
	if err != nil {
		return "", err
	}
	if len(differences.Differences) == 0 {
		return "", errNoneBefore
	}
	return bounded(differences.Markdown(), maxNotes-notesRoom), nil
}

// bounded cuts a text to a number of characters, at the end of a line, and says so.
func bounded(text string, most int) string {
	const cut = "\n…\n\nThis is not all: `clusterctl release diff` shows the rest.\n"
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	kept := string(runes[:most-len([]rune(cut))])
	if i := strings.LastIndex(kept, "\n"); i >= 0 {
		kept = kept[:i]
	}
	return kept + cut
}
