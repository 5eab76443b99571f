package checks_test

import (
	"path/filepath"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// BenchmarkRun checks all released providers of the corpus, one after the other.
func BenchmarkRun(b *testing.B) {
	releases, err := release.Read(filepath.Join(pinned.Corpus(b), "released"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range releases {
			if _, err := catalog.All().Run(b.Context(), &checks.Subject{Release: r}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
