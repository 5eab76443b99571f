package checks

import (
	"context"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

var clusterClassAdmission = Check{
	ID: "clusterclass-admission", Group: ClusterClass, Severity: Warning,
	Title:  "Cluster API's webhook admits the ClusterClasses",
	Source: "Cluster API book, ClusterClass, Writing a ClusterClass",
	Run: func(s *Subject, report Report) {
		for _, t := range s.clusterClasses() {
			for _, o := range t.objects {
				if isClass(o) && s.isValid(t, o) {
					t.reportAdmission(s.Context(), o, report)
				}
			}
		}
	},
}

// isValid says whether an object passes the schema of its kind. One that does not never comes before
// a webhook, and what is lost of it would be missed there again.
func (s *Subject) isValid(t *template, o object) bool {
	valid := true
	s.reportSchema(t, o, func(f Finding) { valid = valid && f.Severity == Note })
	return valid
}

// reportAdmission lets the webhook judge a class as it would when the class is created.
func (t *template) reportAdmission(ctx context.Context, o object, report Report) {
	class, err := topology.Class(ctx, &o.Unstructured)
	if err != nil {
		return // the API server refuses it before, and template-schema says so
	}
	problems, err := topology.Admit(ctx, class)
	if err != nil {
		return
	}
	for _, p := range problems {
		path := schemas.Steps(o.Object, p.Field)
		if t.guessedAt(o, schemas.Problem{Path: path}) {
			continue
		}
		report(Finding{Place: o.place(path...),
			Message: "Cluster API's webhook refuses the ClusterClass: " + strings.TrimSuffix(p.Message, "."),
			Fix:     "fix the field: no cluster can have the class as it is"})
	}
}
