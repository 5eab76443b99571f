package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/compare"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// NoNotes as Options.NotesFrom makes no notes.
	NoNotes = "none"
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

// notes returns the text of a version's release: the user's or, where there is none, what changed since
// the release before. Where that can't be said the text is empty, which the user is told, with a
// warning unless this is the first release: nothing is held up for notes.
func (o Options) notes(ctx context.Context, v *store.Version, from history) (text, warning string) {
	if o.Notes != "" || o.NotesFrom == NoNotes {
		return o.Notes, ""
	}
	o.tell("making the notes of " + v.Number)
	text, err := o.makeNotes(ctx, v, from)
	if errors.Is(err, errNoneBefore) && o.NotesFrom == "" {
		o.tell(fmt.Sprintf("%s has no notes: %v", v.Number, err))
		return "", ""
	}
	if err != nil {
		return "", fmt.Sprintf("%s has no notes, as it could not be compared with the release before: %v", v.Number, err)
	}
	return text, ""
}

// errNoneBefore says that there is nothing that notes could be made against.
var errNoneBefore = errors.New("there is no release of these providers before it")

// makeNotes compares a version with the release before.
func (o Options) makeNotes(ctx context.Context, v *store.Version, from history) (string, error) {
	location := o.NotesFrom
	if location == "" && o.Previous != NoPrevious {
		location = o.Previous
	}
	previous, err := o.previous(ctx, location, v.Releases, from)
	if err != nil {
		return "", err
	}
	before := slices.DeleteFunc(previous, func(r *release.Release) bool { return r == nil })
	differences, err := compare.Sets(before, v.Releases)
	if err != nil {
		return "", err
	}
	if len(differences.Differences) == 0 {
		return "", errNoneBefore
	}
	return bounded(differences.Markdown(), maxNotes-notesRoom), nil
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
