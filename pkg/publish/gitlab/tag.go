package gitlab

import (
	"context"
	"net/http"
	"os"
	"strings"

	"github.com/xanzy/go-gitlab"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
)

// commitToTag returns the commit to tag a version at, as store.Options.CommitToTag. Where no commit is
// known it is "", and the server decides.
func (s *Store) commitToTag(ctx context.Context, v *store.Version) (string, error) {
	tagged, err := s.tagCommit(ctx, v.Number)
	if err != nil {
		return "", err
	}
	pipeline := os.Getenv("CI_COMMIT_SHA")
	if v.Source() == nil && s.opts.Commit == "" && tagged == "" && pipeline == "" {
		return "", nil
	}
	return s.opts.CommitToTag(v, s.URL(), tagged, pipeline)
}

// tagCommit returns the commit that a version's tag is of, or "" where there is no such tag or where
// the token may not look: those of jobs read no tags on many servers.
// Source: GitLab docs, "Tags API"; "CI/CD job token", "Job token access".
func (s *Store) tagCommit(ctx context.Context, version string) (string, error) {
	host, _, _ := strings.Cut(s.host, ":")
	own := strings.EqualFold(os.Getenv("CI_SERVER_HOST"), host) &&
		(os.Getenv("CI_PROJECT_ID") == s.project || strings.EqualFold(os.Getenv("CI_PROJECT_PATH"), s.project))
	if own && os.Getenv("CI_COMMIT_TAG") == version {
		return os.Getenv("CI_COMMIT_SHA"), nil
	}
	tag, resp, err := s.client.Tags.GetTag(s.project, version, gitlab.WithContext(ctx))
	if resp != nil && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden) {
		return "", nil
	}
	if err != nil {
		return "", s.failure("looking for the tag "+version, resp, err)
	}
	if tag.Commit == nil {
		return "", nil
	}
	return tag.Commit.ID, nil
}
