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

// TestUnnamedInCorpus checks Unnamed in source trees of real projects: the generated release file names all
// templates, and without its entries Unnamed finds those that it named.
func TestUnnamedInCorpus(t *testing.T) {
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
		unnamed, err := templates.Unnamed(source, config)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range unnamed {
			t.Errorf("%s: the release file does not name %s", filepath.Base(dir), f.Path)
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
						if !strings.Contains("/"+path, "/e2e/") { // Unnamed skips folders of tests
							named++
						}
					}
				}
			}
			config.Providers[i].Templates, config.Providers[i].ClusterClasses = nil, nil
		}
		if unnamed, err = templates.Unnamed(source, config); err != nil || len(unnamed) != named {
			t.Errorf("%s: without entries, Unnamed = %v, %v, want %d files", filepath.Base(dir), unnamed, err, named)
		}
		total += named
	}
	t.Logf("%d templates and classes in %d trees", total, len(dirs))
}
