package git

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrNotTracked means that git does not track a file, so that the state of the repository says nothing about the file.
var ErrNotTracked = errors.New("the file is not tracked by git")

// Checkout is the state of a checked-out repository.
type Checkout struct {
	// Commit is the full hash.
	Commit string
	// Repository is the URL of the remote origin, without credentials, or "" if the remote is missing or isn't a
	// server. An SSH address becomes the https URL of the same host and path.
	Repository string
	// MergeRef is the ref of a pull or merge request's merge, e.g. "refs/pull/12/merge", if the commit is such a merge.
	// A server creates it for a pipeline, and no branch contains it.
	MergeRef string
	// Changes are the paths below the file's folder, in the form of git status, that differ from the commit or are not
	// in it. Ignored files are not among them.
	Changes []string
}

// CheckedOut returns the checkout that contains a file, which has to be tracked. It ignores changes of the paths in
// except, which are relative to the file's folder. The error may be ErrNoGit, ErrNoRepository or ErrNotTracked.
func CheckedOut(ctx context.Context, file string, except ...string) (*Checkout, error) {
	dir, name := filepath.Split(file)
	if dir == "" {
		dir = "."
	}
	commit, err := run(ctx, dir, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return nil, fmt.Errorf("finding the commit of %s: %w", dir, err)
	}
	if _, err := run(ctx, dir, "ls-files", "--error-unmatch", "--", ":(literal)"+name); err != nil {
		if exit := new(exec.ExitError); errors.As(err, &exit) && ctx.Err() == nil {
			err = ErrNotTracked
		}
		return nil, fmt.Errorf("finding the commit of %s: %w", file, err)
	}
	c := &Checkout{Commit: strings.TrimSpace(commit)}
	if c.Changes, err = changes(ctx, dir, except); err != nil {
		return nil, err
	}
	// The configured URL without the user's insteadOf, whose result may contain a token.
	if origin, err := run(ctx, dir, "config", "--get", "remote.origin.url"); err == nil {
		c.Repository = webURL(strings.TrimSpace(origin))
	} else if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	refs, err := run(ctx, dir, "for-each-ref", "--points-at=HEAD", "--format=%(refname)")
	if err != nil {
		return nil, fmt.Errorf("listing the refs of %s: %w", c.Commit, err)
	}
	for ref := range strings.Lines(refs) {
		ref = strings.Replace(strings.TrimSpace(ref), "refs/remotes/", "refs/", 1) // the name that actions/checkout uses
		if IsMergeRef(ref) {
			c.MergeRef = ref
		}
	}
	return c, nil
}

// changes returns the paths below a folder that differ from the commit or are not in it.
func changes(ctx context.Context, dir string, except []string) ([]string, error) {
	// The options override a user's configuration.
	args := []string{"status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=none", "--", "."}
	for _, path := range except {
		if path != "." && filepath.IsLocal(path) {
			args = append(args, ":(exclude,literal)"+filepath.ToSlash(path))
		}
	}
	out, err := run(ctx, dir, args...)
	if err != nil {
		return nil, fmt.Errorf("looking for changes in %s: %w", dir, err)
	}
	var paths []string
	for _, entry := range strings.Split(out, "\x00") {
		if len(entry) > 3 { // two letters of state, a space, the path
			paths = append(paths, entry[3:])
		}
	}
	return paths, nil
}

// Untracked returns the files, of a list of paths relative to a folder with forward slashes, that git does not track,
// such as ignored files.
func Untracked(ctx context.Context, dir string, files []string) ([]string, error) {
	out, err := run(ctx, dir, "ls-files", "-z", "--cached", "--recurse-submodules")
	if err != nil {
		return nil, fmt.Errorf("listing the files of %s: %w", dir, err)
	}
	tracked := map[string]bool{}
	for _, file := range strings.Split(out, "\x00") {
		tracked[file] = true
	}
	return slices.DeleteFunc(slices.Clone(files), func(file string) bool { return tracked[file] }), nil
}

// mergeRef matches the refs that GitHub and GitLab create for a pipeline of a request.
// Source: GitHub docs, "Events that trigger workflows", pull_request; GitLab docs, "Merged results
// pipelines" and "Merge trains".
var mergeRef = regexp.MustCompile(`^refs/(pull/[0-9]+/merge|merge-requests/[0-9]+/(merge|train))$`)

// IsMergeRef reports whether a ref is the merge of a pull or merge request that a server created.
func IsMergeRef(ref string) bool { return mergeRef.MatchString(ref) }

// scpLike matches git's short form of an SSH address, USER@HOST:PATH.
var scpLike = regexp.MustCompile(`^(?:[^@/:]+@)?([A-Za-z0-9.-]+):/?([^/:].*)$`)

// webURL returns the https URL of a remote without credentials, or "" if it isn't a server.
func webURL(remote string) string {
	if !strings.Contains(remote, "://") {
		match := scpLike.FindStringSubmatch(remote)
		if match == nil || len(match[1]) == 1 { // a path, or a path on a Windows drive
			return ""
		}
		remote = "ssh://" + match[1] + "/" + match[2]
	}
	u, err := url.Parse(remote)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	scheme, host := u.Scheme, u.Host
	switch u.Scheme {
	case "https", "http":
	case "ssh", "git+ssh", "ssh+git", "git":
		scheme, host = "https", u.Hostname() // the port belongs to another protocol
	default:
		return ""
	}
	path := strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	if path == "" {
		return ""
	}
	return (&url.URL{Scheme: scheme, Host: host, Path: "/" + path}).String()
}
