package publish

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"
)

// cleanUpTime is how long removing what was begun may take after a failure or an interrupt.
const cleanUpTime = 30 * time.Second

// releaseText is what a release says of itself.
type releaseText struct{ name, body string }

// text returns the name and the notes of a version's release. Where the user gave no notes, those
// of a draft without files that people have prepared for it are taken; its id is returned too, as
// it has served its purpose then.
func (g *githubRepository) text(listed []*github.RepositoryRelease, version string) (releaseText, []int64) {
	text := releaseText{name: version, body: g.opts.Notes}
	if g.opts.Notes != "" {
		return text, nil
	}
	for _, r := range listed {
		if isDraftOf(r, version) && !isOwnDraft(r) && len(r.Assets) == 0 {
			if r.GetName() != "" {
				text.name = r.GetName()
			}
			text.body = r.GetBody()
			return text, []int64{r.GetID()}
		}
	}
	return text, nil
}

// draftLooks is how often a draft is looked for whose making was not answered, before another one is
// made. The pauses between them come to half a minute at least: a list may be behind, and each draft
// too many is one that somebody has to remove.
const draftLooks = 5

// createDraft makes the draft that this run works in, under the run's mark, and returns its id.
func (g *githubRepository) createDraft(ctx context.Context, b *bundle, mark, commit string, text releaseText) (int64, error) {
	wanted := &github.RepositoryRelease{
		TagName: &b.version, Name: &text.name, Draft: github.Bool(true), Prerelease: github.Bool(!stable(b.version)),
		Body: github.String(mark + "\n" + text.body),
	}
	if commit != "" {
		wanted.TargetCommitish = &commit
	}
	var last error
	for try := range stepTries {
		if try > 0 {
			// The answer was lost, or came after it was made: it would be in the list under its mark.
			if id, err := g.awaitDraft(ctx, mark); id != 0 || err != nil {
				return id, err
			}
		}
		r, resp, err := g.client.Repositories.CreateRelease(ctx, g.owner, g.name, wanted)
		if err == nil {
			return r.GetID(), nil
		}
		last = g.failure("making a draft of "+b.version, resp, err)
		if ctx.Err() != nil {
			g.discardMarked(ctx, mark)
			return 0, last
		}
		if resp != nil && resp.StatusCode >= 400 && resp.StatusCode < 500 {
			return 0, last
		}
	}
	return 0, fmt.Errorf("%w; given up after %d tries: run this again", last, stepTries)
}

// awaitDraft returns the id of the draft with a mark, or 0 where it does not come up for a while.
func (g *githubRepository) awaitDraft(ctx context.Context, mark string) (int64, error) {
	for look := range draftLooks {
		if err := g.opts.remote.wait(ctx, pause(look+1)); err != nil {
			return 0, err
		}
		if id, err := g.findDraft(ctx, mark); id != 0 || err != nil {
			return id, err
		}
	}
	return 0, nil
}

// findDraft returns the id of the draft with a mark, or 0 where there is none in the list.
func (g *githubRepository) findDraft(ctx context.Context, mark string) (int64, error) {
	listed, err := g.listAtRest(ctx)
	for _, r := range listed {
		if r.GetDraft() && strings.HasPrefix(r.GetBody(), mark) {
			return r.GetID(), nil
		}
	}
	return 0, err
}

// discardMarked removes the draft of a run that was interrupted while it was being made.
func (g *githubRepository) discardMarked(ctx context.Context, mark string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	if id, err := g.findDraft(ctx, mark); err == nil && id != 0 {
		g.discard(ctx, id)
	}
}

// discard removes a draft of this run that has never been asked to become public. What can't be
// removed stays behind as what a killed run leaves.
func (g *githubRepository) discard(ctx context.Context, draft int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	_, _ = g.client.Repositories.DeleteRelease(ctx, g.owner, g.name, draft)
}

// discardLoser removes a draft of this run after another one became public for its version.
func (g *githubRepository) discardLoser(ctx context.Context, draft int64, version string) {
	if there, err := g.awaitPublished(ctx, version); err == nil && there.GetID() != draft {
		g.discard(ctx, draft)
	}
}
