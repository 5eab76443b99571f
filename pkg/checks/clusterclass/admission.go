package clusterclass

import (
	"context"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

var clusterClassAdmission = checks.Check{
	ID: "clusterclass-admission", Group: checks.ClusterClass, Severity: checks.Warning,
	Title:  "Cluster API's webhook admits the ClusterClasses",
	Source: "Cluster API book, ClusterClass, Writing a ClusterClass",
	Run: rendered.Classes.EachObject(func(ctx context.Context, s *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) error {
		if !o.IsCore("ClusterClass") {
			return nil
		}
		if valid, err := rendered.IsValid(ctx, s, t, o); !valid || err != nil {
			return err
		}
		class, err := topology.Class(ctx, &o.Unstructured)
		if err != nil {
			return ctx.Err() // the API server refuses the class, and template-schema reports it
		}
		problems, err := topology.Admit(ctx, class)
		if err != nil {
			return err
		}
		for _, p := range problems {
			path := schemas.Steps(o.Object, p.Field)
			if t.GuessedAt(o, path...) {
				continue
			}
			report(checks.Finding{Place: o.Place(path...),
				Message: "Cluster API's webhook refuses the ClusterClass: " + strings.TrimSuffix(p.Message, "."),
				Fix:     "fix the field: the class can't be installed as it is"})
		}
		return nil
	}),
}
