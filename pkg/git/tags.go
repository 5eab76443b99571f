package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrNoTagsFetched means that a repository has no tags because it is a shallow clone without tags, the default in
// continuous integration. The remote repository may have tags.
var ErrNoTagsFetched = errors.New("a shallow clone without tags: fetch them with `git fetch --tags`")

// Tags returns the tags of the git repository that contains a folder, sorted by name. The list is empty if the
// repository has no tags. The error may be ErrNoGit, ErrNoRepository or ErrNoTagsFetched.
//
// Only the folder determines the repository: GIT_DIR and similar variables, as a hook of another repository sets them,
// are removed from git's environment.
func Tags(ctx context.Context, dir string) ([]string, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("listing git tags: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("listing git tags: %s is not a folder", dir)
	}
	shallow, err := run(ctx, dir, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, fmt.Errorf("listing git tags of %s: %w", dir, err)
	}
	// The options override a user's configuration.
	out, err := run(ctx, dir, "tag", "--list", "--no-column", "--sort=refname", "--format=%(refname:strip=2)")
	if err != nil {
		return nil, fmt.Errorf("listing git tags of %s: %w", dir, err)
	}
	tags := strings.Fields(out)
	if len(tags) == 0 && strings.TrimSpace(shallow) == "true" {
		return nil, fmt.Errorf("listing git tags of %s: %w", dir, ErrNoTagsFetched)
	}
	return tags, nil
}

// TagsHere returns the tags of the checked-out commit of the git repository that contains a folder, sorted by name. The
// error may be ErrNoGit or ErrNoRepository.
func TagsHere(ctx context.Context, dir string) ([]string, error) {
	out, err := run(ctx, dir, "tag", "--points-at", "HEAD", "--no-column", "--sort=refname", "--format=%(refname:strip=2)")
	if err != nil {
		return nil, fmt.Errorf("listing the git tags of what is checked out in %s: %w", dir, err)
	}
	return strings.Fields(out), nil
}
