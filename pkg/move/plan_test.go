package move_test

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/schematest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

var update = flag.Bool("update", false, "rewrite the schema of the plan")

// TestPlanSchema checks that docs/move-plan.schema.json matches the plan's types and a plan with all kinds of
// content.
func TestPlanSchema(t *testing.T) {
	world, err := move.Dump(t.Context(), false, "draw/testdata/sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plan := move.Discover(t.Context(), world, "team").Plan()
	if len(plan.Groups) == 0 || len(plan.LeftBehind) == 0 || len(plan.Apart) == 0 || len(plan.Stops) == 0 {
		t.Errorf("the plan lacks a kind of content: %+v", plan)
	}
	plan.Assumptions = append(plan.Assumptions, "that its CRD has no labels")
	plan.Problems = append(plan.Problems, move.Problem{Where: "a file, line 1", Message: "it can't be read"})
	document, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	schematest.Check(t, "move-plan.schema.json", &move.Plan{}, document, *update)
}
