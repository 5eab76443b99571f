// Package pipeline writes the files that release a tree from continuous integration: the pipeline, and targets for
// make.
package pipeline

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var (
	//go:embed github.yaml
	github string
	//go:embed gitlab.yaml
	gitlab string
	//go:embed targets.mk
	targets string
)

const (
	// Makefile is the file with the targets; includeLine includes it in the tree's makefile.
	Makefile    = "clusterctl-release.mk"
	includeLine = "include " + Makefile
	// gitlabFile is the pipeline; GitLab's main file includes it.
	gitlabFile    = ".gitlab/clusterctl-release.yml"
	gitlabInclude = "include:\n  - local: " + gitlabFile + "\n"
	gitlabMain    = ".gitlab-ci.yml"
)

// Names are the supported services.
var Names = []string{"github", "gitlab"}

// File is a file to write, with its path in the tree, with forward slashes.
type File struct {
	Path string
	Data []byte
	// Extends means that the file exists, and that Data contains it with additions.
	Extends bool
}

// Plan contains the files to write.
type Plan struct {
	Files []File
	notes []string
}

// New returns the plan for a tree and one of Names. tool is the version of clusterctl-release to use.
func New(name, root, tool string) (*Plan, error) {
	ref := tool
	if _, err := release.ParseVersion(tool); err != nil || strings.ContainsAny(tool, "-+") {
		ref = "main"
	}
	p := &Plan{}
	switch name {
	case "github":
		p.add(".github/workflows/clusterctl-release.yaml", strings.ReplaceAll(github, "VERSION", ref))
	case "gitlab":
		p.add(gitlabFile, strings.ReplaceAll(gitlab, "VERSION", ref))
		if err := p.includeGitLab(root); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("no pipeline for %q is available, only for %s", name, strings.Join(Names, " and "))
	}
	p.add(Makefile, targets)
	if err := p.includeTargets(root); err != nil {
		return nil, err
	}
	if ref == "main" {
		p.note("the pipeline uses the main branch of clusterctl-release: name a release of it, which doesn't change")
	}
	return p, nil
}

func (p *Plan) add(path, text string) {
	p.Files = append(p.Files, File{Path: path, Data: []byte(text)})
}

func (p *Plan) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// Left returns the remaining steps for the maintainer after the files are written. images are those of a release of the
// tree: the pipeline builds none.
func (p *Plan) Left(config *release.Config) []string {
	var images []string
	for _, provider := range config.Providers {
		for _, image := range provider.Images {
			if image.Digest == "" && image.NewTag == "" {
				images = append(images, cmp.Or(image.NewName, image.Name))
			}
		}
	}
	slices.Sort(images)
	left := slices.Clone(p.notes)
	for _, image := range slices.Compact(images) {
		left = append(left, fmt.Sprintf("push the image %s with the version as its tag before the release: the pipeline pushes no images", image))
	}
	return append(left, "commit these files, then push a tag vX.Y.Z to release it")
}

// includeTargets adds the targets to the tree's makefile, or creates one.
func (p *Plan) includeTargets(root string) error {
	for _, name := range []string{"GNUmakefile", "makefile", "Makefile"} { // in the order of make
		text, found, err := readFile(root, name)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if !slices.Contains(strings.Split(text, "\n"), includeLine) {
			if text != "" && !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			p.Files = append(p.Files, File{Path: name, Data: []byte(text + "\n" + includeLine + "\n"), Extends: true})
		}
		return nil
	}
	p.add("Makefile", includeLine+"\n")
	return nil
}

// includeGitLab creates the pipeline's file. An existing main file may already have an include, and is left to the
// maintainer.
func (p *Plan) includeGitLab(root string) error {
	text, found, err := readFile(root, gitlabMain)
	switch {
	case err != nil:
		return err
	case !found:
		p.add(gitlabMain, gitlabInclude)
	case !strings.Contains(text, gitlabFile):
		p.note("add to %s: include: [{local: %s}]", gitlabMain, gitlabFile)
	}
	return nil
}

// readFile returns the text of a file of the tree, and whether it exists.
func readFile(root, name string) (text string, found bool, err error) {
	data, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // names of this file
	if os.IsNotExist(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("looking at the tree's build files: %w", err)
	}
	return string(data), true, nil
}
