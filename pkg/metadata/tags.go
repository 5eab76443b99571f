package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The reasons for which a repository's tags can't be told.
var (
	// ErrNoGit says that there is no git to ask.
	ErrNoGit = errors.New("git is not installed or not in the PATH")
	// ErrNoRepository says that a folder is in no git repository.
	ErrNoRepository = errors.New("not in a git repository")
	// ErrNoTagsFetched says that a repository has no tags because it is a shallow clone: none were
	// fetched, as continuous integration does by default. That is not the same as having none.
	ErrNoTagsFetched = errors.New("a shallow clone without tags: fetch them with `git fetch --tags`")
)

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
		return nil, fmt.Errorf("listing git tags: %s is no folder", dir)
	}
	shallow, err := git(ctx, dir, "rev-parse", "--is-shallow-repository")
	if err != nil {
		// Git has one exit status for all that goes wrong, so what is there tells the reason.
		if exit := new(exec.ExitError); errors.As(err, &exit) && ctx.Err() == nil && !gitAbove(dir) {
			err = ErrNoRepository
		}
		return nil, fmt.Errorf("listing git tags of %s: %w", dir, err)
	}
	// The options hold against what a user's own configuration may set.
	out, err := git(ctx, dir, "tag", "--list", "--no-column", "--sort=refname", "--format=%(refname:strip=2)")
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
// name. The errors are those of git, ErrNoGit among them.
func TagsHere(ctx context.Context, dir string) ([]string, error) {
	out, err := git(ctx, dir, "tag", "--points-at", "HEAD", "--no-column", "--sort=refname", "--format=%(refname:strip=2)")
	if err != nil {
		return nil, fmt.Errorf("listing the git tags of what is checked out in %s: %w", dir, err)
	}
	return slices.DeleteFunc(strings.Split(out, "\n"), func(tag string) bool { return tag == "" }), nil
}

// git runs git in a folder and returns its output. The error is ErrNoGit where there is no git.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoGit, err)
	}
	command := exec.CommandContext(ctx, path, args...) //nolint:gosec // the arguments are this file's
	command.Dir = dir
	command.Env = gitEnvironment(os.Environ())
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("running git %s: %w: %s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// repositoryVariables tie git to a repository other than that of the folder it runs in.
var repositoryVariables = []string{
	"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE",
}

// gitEnvironment returns an environment without the variables that name a repository.
func gitEnvironment(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(repositoryVariables, name)
	})
}

// gitAbove says whether a folder or one above it holds what git takes for a repository.
func gitAbove(dir string) bool {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	for {
		if _, err := os.Lstat(filepath.Join(abs, ".git")); err == nil {
			return true
		}
		parent := filepath.Dir(abs)
		if parent == abs {
			return false
		}
		abs = parent
	}
}
