package github

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-github/v82/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
)

// abandonedTime is after how long the run that made a draft must be over.
const abandonedTime = 90 * time.Minute

// Settle implements store.Store. As the version is public under another id, none of the drafts that are
// removed can become public any more. It also corrects which version is the latest, where two
// publishers of several versions met.
func (s *Store) Settle(ctx context.Context, v *store.Version, x store.Staged) ([]string, error) {
	if s.opts.Draft {
		return nil, nil // nothing is public yet
	}
	there, err := s.awaitPublished(ctx, v.Number)
	if err != nil {
		return nil, err
	}
	id, mark := there.GetID(), ""
	if st, ok := x.(*staged); ok {
		id, mark = st.id, st.mark
	}
	listed, err := s.awaitListed(ctx, v.Number, id)
	if err != nil {
		return nil, err
	}
	if there.GetID() != id {
		return nil, fmt.Errorf("%s was published by something else at the same time, as another release: compare them on %s and remove one", v.Number, s.Place(v.Number))
	}
	var warnings []string
	for _, r := range listed {
		_, own := draftOf(r, v.Number)
		isMine := mark != "" && strings.HasPrefix(r.GetBody(), mark)
		switch {
		case r.GetID() == id || r.GetTagName() != v.Number:
		case !r.GetDraft() && x == nil: // the plan has said so
		case !r.GetDraft():
			warnings = append(warnings, fmt.Sprintf("%s is public more than once, and users get one or the other: compare %s and %s and remove one", v.Number, there.GetHTMLURL(), r.GetHTMLURL()))
		case !own || store.Replaceable(v.Number) && !isMine && !s.isAbandoned(r):
		default:
			s.opts.Say("removing a draft that was left behind")
			if err := s.delete(ctx, r.GetID(), "removing a draft that was left behind"); err != nil {
				return nil, err
			}
		}
	}
	return warnings, s.correctLatest(ctx, listed, v.Number)
}

// awaitListed waits until the list shows the public release of a version, and returns it: a list that
// knows of it knows of every draft that was made before.
func (s *Store) awaitListed(ctx context.Context, version string, id int64) ([]*github.RepositoryRelease, error) {
	for try := 1; ; try++ {
		listed, err := s.listAtRest(ctx)
		if err != nil || slices.ContainsFunc(listed, func(r *github.RepositoryRelease) bool { return r.GetID() == id && !r.GetDraft() }) {
			return listed, err
		}
		if again, err := s.http.Await(ctx, try, version); err != nil || !again {
			return listed, err
		}
	}
}

// awaitPublished returns the public release of a version that was just published.
func (s *Store) awaitPublished(ctx context.Context, version string) (*github.RepositoryRelease, error) {
	for try := 1; ; try++ {
		there, err := s.published(ctx, version)
		if there != nil || err != nil {
			return there, err
		}
		again, err := s.http.Await(ctx, try, version)
		if err != nil {
			return nil, err
		}
		if !again {
			return nil, fmt.Errorf("%s was published, and is not found under its tag: run this again; it looks first what is there", version)
		}
	}
}

// isAbandoned says whether the run that made a draft must be over.
func (s *Store) isAbandoned(r *github.RepositoryRelease) bool {
	if strings.HasPrefix(r.GetBody(), asideMark) {
		return true // another release is public in its place
	}
	fields := strings.Fields(strings.TrimPrefix(r.GetBody(), draftMark))
	if len(fields) < 2 {
		return false
	}
	made, err := time.Parse(time.RFC3339, fields[1])
	return err == nil && s.opts.Network.Time().Sub(made) > abandonedTime
}

// correctLatest names the highest version "latest" where a publisher of a lower one, which did not
// know of it, named its own.
func (s *Store) correctLatest(ctx context.Context, listed []*github.RepositoryRelease, version string) error {
	highest := highestStable(listed, version)
	if !store.Stable(version) || highest == version {
		return nil
	}
	latest, resp, err := s.client.Repositories.GetLatestRelease(ctx, s.owner, s.name)
	if err != nil {
		return s.failure("looking for the latest release", resp, err)
	}
	if latest.GetTagName() != version {
		return nil
	}
	for _, r := range listed {
		if r.GetTagName() == highest && !r.GetDraft() {
			return s.edit(ctx, "naming "+highest+" the latest release", r.GetID(), &github.RepositoryRelease{MakeLatest: github.Ptr("true")})
		}
	}
	return nil
}
