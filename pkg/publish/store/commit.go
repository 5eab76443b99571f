package store

import (
	"fmt"
	"os"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/git"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Source returns what the releases of a version were built from, or nil where one of them has no record.
func (v *Version) Source() *release.Source {
	for _, r := range v.Releases {
		if r.Source == nil {
			return nil
		}
	}
	return v.Releases[0].Source
}

// CommitToTag returns the commit to tag a version at in a place, or "" where it has a tag,
// which is at the commit tagged, already. The commit is that which the build recorded or, without a
// record, the user's or the pipeline's. It is an error if the tag is at another commit, or if the commit
// is the merge of a request, which no branch keeps.
func (o Options) CommitToTag(v *Version, place, tagged, pipeline string) (string, error) {
	commit, builtFrom := o.Commit, "--commit names"
	if source := v.Source(); source != nil {
		commit, builtFrom = source.Commit, "the release was built from"
	}
	if commit == "" && tagged == "" {
		commit = pipeline
	}
	switch {
	case tagged != "" && commit != "" && !strings.EqualFold(commit, tagged):
		return "", fmt.Errorf("the tag %s of %s is of the commit %s, and %s %s: publish what was built from the tag, or another version", v.Number, place, tagged, builtFrom, commit)
	case tagged != "":
		return "", nil
	case commit == "":
		return "", fmt.Errorf("%s has no tag %s: push the tag first, or name the commit to tag (--commit)", place, v.Number)
	}
	if ref := mergeRefOf(commit, v.Source()); ref != "" {
		return "", fmt.Errorf("%s has no tag %s, and the commit %s can't be tagged: it is the merge that the server made for %s, and no branch keeps it: build and publish from a branch or a tag", place, v.Number, commit, ref)
	}
	return commit, nil
}

// mergeRefOf returns the ref of the pull or merge request whose merge a commit is, or "".
// Source: GitHub docs, "Variables reference", GITHUB_REF and GITHUB_SHA; GitLab docs, "Predefined CI/CD
// variables", CI_MERGE_REQUEST_REF_PATH and CI_COMMIT_SHA.
func mergeRefOf(commit string, source *release.Source) string {
	if source != nil && source.MergeRef != "" {
		return source.MergeRef
	}
	for _, run := range [][2]string{{"GITHUB_REF", "GITHUB_SHA"}, {"CI_MERGE_REQUEST_REF_PATH", "CI_COMMIT_SHA"}} {
		if ref := os.Getenv(run[0]); git.IsMergeRef(ref) && strings.EqualFold(commit, os.Getenv(run[1])) {
			return ref
		}
	}
	return ""
}
