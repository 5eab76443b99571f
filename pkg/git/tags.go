package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// ErrNoTagsFetched says that a repository has no tags because it is a shallow clone: none were
// fetched, as continuous integration does by default. That is not the same as having none.
var ErrNoTagsFetched = errors.New("a shallow clone without tags: fetch them with `git fetch --tags`")

// Tags returns the tags of the git repository that holds a folder, sorted by name, by running git.
// It is an empty list where the repository has none. The error is ErrNoGit, ErrNoRepository or
// ErrNoTagsFetched where that is the reason.
//
// The folder alone decides which repository it is: GIT_DIR and the like, as they are set in a hook
// of another repository, are left out of git's environment.
func Tags(ctx context.Context, dir string) ([]string, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("listing git tags: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("listing git tags: %s is not a folder", dir)
	}
	shallow, err := run(ctx, dir, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, fmt.Errorf("listing git tags of %s: %w", dir, reason(ctx, dir, err))
	}
	// The options hold against what a user's own configuration may set.
	out, err := run(ctx, dir, "tag", "--list", "--no-column", "--sort=refname", "--format=%(refname:strip=2)")
	if err != nil {
		return nil, fmt.Errorf("listing git tags of %s: %w", dir, err)
	}
	tags := slices.DeleteFunc(strings.Split(out, "\n"), func(tag string) bool { return tag == "" })
	if len(tags) == 0 && strings.TrimSpace(shallow) == "true" {
		return nil, fmt.Errorf("listing git tags of %s: %w", dir, ErrNoTagsFetched)
	}
	return tags, nil
}

// TagsHere returns the tags of what is checked out of the git repository that holds a folder, sorted by
// name. The error is ErrNoGit or ErrNoRepository where that is the reason.
func TagsHere(ctx context.Context, dir string) ([]string, error) {
	out, err := run(ctx, dir, "tag", "--points-at", "HEAD", "--no-column", "--sort=refname", "--format=%(refname:strip=2)")
	if err != nil {
		return nil, fmt.Errorf("listing the git tags of what is checked out in %s: %w", dir, reason(ctx, dir, err))
	}
	return slices.DeleteFunc(strings.Split(out, "\n"), func(tag string) bool { return tag == "" }), nil
}
