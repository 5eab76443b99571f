// Package git reads the git repository of a folder by running git.
package git

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

// The reasons for which git can't read a repository.
var (
	// ErrNoGit means that git is missing.
	ErrNoGit = errors.New("git is not installed or not in the PATH")
	// ErrNoRepository means that a folder is in no git repository.
	ErrNoRepository = errors.New("not in a git repository")
)

// run runs git in a folder and returns its output. The error may be ErrNoGit or ErrNoRepository: git has one exit status
// for all errors, so run looks whether a repository exists.
func run(ctx context.Context, dir string, args ...string) (string, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoGit, err)
	}
	command := exec.CommandContext(ctx, path, args...) //nolint:gosec // the arguments are this file's
	command.Dir = dir
	command.Env = append(gitEnvironment(os.Environ()), "GIT_OPTIONAL_LOCKS=0") // changes nothing in the tree
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	err = command.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && ctx.Err() == nil && !gitAbove(dir) {
		return "", ErrNoRepository
	}
	if err != nil {
		return "", fmt.Errorf("running git %s: %w: %s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// repositoryVariables make git use another repository than that of its folder.
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

// gitAbove reports whether a folder or one above it contains a git repository.
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
