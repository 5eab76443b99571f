package discover_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/discover"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// TestNothingIsForgotten looks for templates that a release file leaves out in trees as projects keep
// them: none by the release file that is written for them, and those that it names where it names none.
func TestNothingIsForgotten(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(pinned.Corpus(t), "source", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("the corpus has no trees: %v", err)
	}
	total := 0
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		source, err := tree.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		found, err := discover.Look(t.Context(), source, quiet)
		if err != nil {
			t.Logf("%s has no provider: %v", filepath.Base(dir), err)
			continue
		}
		config, err := release.Parse(filepath.Join(dir, release.ConfigFile), found.YAML())
		if err != nil {
			t.Fatal(err)
		}
		forgotten, err := templates.Unnamed(source, config)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range forgotten {
			t.Errorf("%s: %s is not named", filepath.Base(dir), f.Path)
		}
		named := 0
		for i := range config.Providers {
			for _, asset := range append(config.Providers[i].Templates, config.Providers[i].ClusterClasses...) {
				if asset.Path != "" {
					paths, err := source.Glob(asset.Path)
					if err != nil {
						t.Fatal(err)
					}
					for _, path := range paths {
						if !strings.Contains("/"+path, "/e2e/") { // where no template is looked for
							named++
						}
					}
				}
			}
			config.Providers[i].Templates, config.Providers[i].ClusterClasses = nil, nil
		}
		if forgotten, err = templates.Unnamed(source, config); err != nil || len(forgotten) != named {
			t.Errorf("%s: of %d templates that nothing names, %d are found: %v, %v", filepath.Base(dir), named, len(forgotten), forgotten, err)
		}
		total += named
	}
	t.Logf("%d templates and classes in %d trees", total, len(dirs))
}
