package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// TestMovePlanOfOwnFlavors checks that a move of the objects of each flavor of this repository's provider
// leaves nothing behind.
func TestMovePlanOfOwnFlavors(t *testing.T) {
	t.Chdir(pinned.Root(t))
	folder := t.TempDir()
	var stdout, stderr strings.Builder
	if status := run(t.Context(), []string{"build", "--version", "v0.1.0", "--output", folder, "--skip-checks"}, &stdout, &stderr); status != exitFine {
		t.Fatalf("build: status %d: %s", status, stderr.String())
	}
	releases := filepath.Join(folder, "infrastructure-libvirt", "v0.1.0")
	files, err := filepath.Glob(filepath.Join(releases, "cluster-template*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the release has the templates %v: %v", files, err)
	}
	for _, file := range files {
		flavor := strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), ".yaml"), "cluster-template"), "-")
		t.Run(flavor, func(t *testing.T) {
			args := []string{"move-plan", releases, "--format", "json"}
			if flavor != "" {
				args = append(args, "--flavor", flavor)
			}
			var stdout, stderr strings.Builder
			status := run(t.Context(), args, &stdout, &stderr)
			var plan move.Plan
			if err := json.Unmarshal([]byte(stdout.String()), &plan); err != nil {
				t.Fatalf("status %d, %s: %v", status, stderr.String(), err)
			}
			if status != exitFine || len(plan.LeftBehind) > 0 || plan.Created() < 5 {
				t.Errorf("status %d, %d objects are moved, %v are left behind; %s", status, plan.Created(), plan.LeftBehind, stderr.String())
			}
		})
	}
}
