package publish

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/compare"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// NoNotes as Options.NotesFrom makes no notes.
	NoNotes = "none"
	// notesTime is how long the release before may take to be read.
	notesTime = 2 * time.Minute
	// maxNotes is how many characters the text of a release may have. GitLab takes more.
	// Source: GitHub answers "body is too long (maximum is 125000 characters)": ncipollo/release-action issue 493.
	maxNotes = 125000
	// notesRoom is left for the mark of a draft.
	notesRoom = 500
)

// checkNotes refuses notes of the user's that a server would not take.
func (o Options) checkNotes() error {
	if n := len([]rune(o.Notes)); n > maxNotes-notesRoom {
		return fmt.Errorf("the notes have %d characters, and a release takes %d: shorten them, or put a link to them", n, maxNotes-notesRoom)
	}
	return nil
}

// notesSource is where a server's own releases are read from, for the notes.
type notesSource struct {
	// place is the URL of the server's place.
	place string
	// versions returns the versions that are public there.
	versions func(ctx context.Context) ([]string, error)
	// fetch returns what is public of a provider for a version; the error is release.ErrNoRelease where
	// that is nothing.
	fetch func(ctx context.Context, provider release.Provider, version string) (*release.Release, error)
}

// notes returns the text of a bundle's release: the user's or, where there is none, what changed since
// the release before. Where that can't be said the text is empty, which the user is told, with a
// warning unless this is the first release: nothing is held up for notes.
func (o Options) notes(ctx context.Context, b *bundle, from notesSource) (text, warning string) {
	if o.Notes != "" || o.NotesFrom == NoNotes {
		return o.Notes, ""
	}
	o.tell("making the notes of " + b.version)
	limited, cancel := context.WithTimeout(ctx, notesTime)
	defer cancel()
	text, err := o.makeNotes(limited, b, from)
	if errors.Is(err, errNoneBefore) && o.NotesFrom == "" {
		o.tell(fmt.Sprintf("%s has no notes: %v", b.version, err))
		return "", ""
	}
	if err != nil {
		return "", fmt.Sprintf("%s has no notes, as it could not be compared with the release before: %v", b.version, err)
	}
	return text, ""
}

// errNoneBefore says that there is nothing that notes could be made against.
var errNoneBefore = errors.New("there is no release of these providers before it")

// makeNotes compares a bundle with the release before.
func (o Options) makeNotes(ctx context.Context, b *bundle, from notesSource) (string, error) {
	before, err := o.releasesBefore(ctx, b, from)
	if err != nil {
		return "", err
	}
	differences, err := compare.Sets(before, b.releases)
	if err != nil {
		return "", err
	}
	if len(differences.Differences) == 0 {
		return "", errNoneBefore
	}
	return bounded(differences.Markdown(), maxNotes-notesRoom), nil
}

// releasesBefore returns the releases that notes compare with: the one that the user named, or the
// highest public one below the version. Of a version without a pre-release part it is one of these.
func (o Options) releasesBefore(ctx context.Context, b *bundle, from notesSource) ([]*release.Release, error) {
	if o.NotesFrom != "" {
		if !sameServer(o.NotesFrom, from.place) {
			o.TokenFile = "" // it is for the server that is published to
		}
		return ReadWith(ctx, o.NotesFrom, o)
	}
	versions, err := from.versions(ctx)
	if err != nil {
		return nil, err
	}
	version := versionBefore(versions, b.version)
	if version == "" {
		return nil, errNoneBefore
	}
	var before []*release.Release
	for _, r := range b.releases {
		one, err := from.fetch(ctx, r.Provider, version)
		if errors.Is(err, release.ErrNoRelease) {
			continue // a provider that is new
		}
		if err != nil {
			return nil, err
		}
		before = append(before, one)
	}
	return before, nil
}

// versionBefore returns the highest version below another one, or "".
func versionBefore(versions []string, version string) string {
	before := ""
	for _, v := range versions {
		if _, err := release.ParseVersion(v); err != nil || stable(version) && !stable(v) || compareVersions(v, version) >= 0 {
			continue
		}
		if before == "" || compareVersions(v, before) > 0 {
			before = v
		}
	}
	return before
}

// sameServer says whether two URLs are of one server.
func sameServer(a, b string) bool {
	x, xErr := url.Parse(a)
	y, yErr := url.Parse(b)
	return xErr == nil && yErr == nil && x.Host != "" && x.Scheme == y.Scheme && strings.EqualFold(x.Host, y.Host)
}

// bounded cuts a text to so many characters, at the end of a line, and says so.
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
