package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// contractTests is the folder of the test for the rules that can be checked only at run time, contractTest is its name,
// and scene is the page's word for a part of it.
const (
	contractTests = "provider/internal/testing/world/"
	contractTest  = "TestRulesOfTheContracts"
	scene         = "test"
)

// behaviour describes what the provider does about the rules that a release does not show. The key is the rule's ID
// without its resource.
var behaviour = map[string]string{
	"externally-managed":   "A LibvirtCluster with the annotation `cluster.x-k8s.io/managed-by` is left as it is: no finalizer, no status.",
	"multi-tenancy":        "The manager has the flags `--namespace` and `--watch-filter`. A LibvirtClusterIdentity says which namespaces may use it.",
	"clusterctl-support":   "The release keeps the rules of [the clusterctl contract](#clusterctl).",
	"pausing":              "Nothing is changed while the Cluster or the object is paused, and the condition `Paused` says so.",
	"in-place-changes":     "The webhook refuses changes of a machine that can't be made in place. An update extension makes the others.",
	"template-dry-run":     "Templates are immutable. The webhook lets the topology controller's dry run pass.",
	"template-autoscaling": "The template's status has the capacity and the node's architecture.",
}

// contractPage returns the rules of Cluster API's contracts, with how the provider's release follows each of them and
// which test or check proves it. A rule without either is an error.
func contractPage(version string) (string, error) {
	config, err := release.Load(release.ConfigFile)
	if err != nil {
		return "", err
	}
	source, err := tree.Open(".")
	if err != nil {
		return "", err
	}
	result, err := build.Build(context.Background(), source, build.Options{Config: config, Version: version})
	if err != nil {
		return "", err
	}
	own := result.Releases[0]
	tables, err := contract.Tables(own)
	if err != nil {
		return "", err
	}
	shown, err := shownBy("contract_test.go", "contract_pool_test.go")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# The contracts\n\n" + generated + `
How CAPLV follows the contracts of Cluster API's providers. ` + "`clusterctl release contract RELEASE`" + ` prints such tables for any provider.

A [check](checks.md) reads the release: ` + "`make release`" + ` fails where it finds an error or a warning. A test drives what shows only when something runs: ` + code(contractTest) + ` in ` + code(contractTests) + ` has a scene for each such rule.
`)
	for _, t := range tables {
		rows, err := contractRows(t, shown)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n## %s: %s\n\nThe rules of [%s](https://cluster-api.sigs.k8s.io/developer/providers/contracts/%s), contract %s, for %s and its template, version %s.\n\n",
			t.Resource, t.Kind, t.Resource, t.Page, t.Contract, t.Kind, t.Version)
		b.WriteString(table([]string{"rule", "mandatory", "what CAPLV does", "shown by"}, rows))
	}
	clusterctl, err := clusterctlRows(own, config, source)
	if err != nil {
		return "", err
	}
	b.WriteString("\n## clusterctl\n\nThe rules of the [clusterctl contract](https://cluster-api.sigs.k8s.io/developer/providers/contracts/clusterctl), by its sections. Checks that compare a release with the one before are not listed.\n\n" +
		table([]string{"section", "what holds for the release", "shown by"}, clusterctl))
	return b.String(), nil
}

// contractRows returns the rows of a contract's table.
func contractRows(t contract.Table, shown map[string]string) ([][]string, error) {
	var rows [][]string
	for _, r := range t.Rows {
		if r.State == contract.Missing || r.State == contract.Wrong {
			return nil, fmt.Errorf("%s: %s: %s", t.Kind, r.Text(), strings.Join(r.Remarks(), "; "))
		}
		does, mandatory := strings.Join(r.Remarks(), "; "), "no"
		switch {
		case !r.Visible():
			_, rule, _ := strings.Cut(r.ID, strings.ReplaceAll(t.Page, "machinepool", "machine-pool")+"-")
			if does = behaviour[rule]; does == "" {
				return nil, fmt.Errorf("behaviour lacks the rule %s of %s", rule, t.Page)
			}
		case does == "" || r.State == contract.NotApplicable:
			does = r.Title
		case !strings.Contains(does, " "):
			does = code(does)
		}
		if r.Mandatory {
			mandatory = "yes"
		} else if r.Note != "" {
			mandatory = "no: " + strings.ToLower(r.Note[:1]) + strings.TrimSuffix(r.Note[1:], ".")
		}
		var by []string
		if r.Visible() {
			by = append(by, checkLink("check", "contract-"+r.ID))
		}
		if test := shown[r.Name]; test == scene || len(by) == 0 && test != "" {
			by = append(by, test)
		}
		if len(by) == 0 {
			return nil, fmt.Errorf("nothing shows the rule %s of %s", r.Name, t.Page)
		}
		rows = append(rows, []string{r.Text(), mandatory, does, strings.Join(by, ", ")})
	}
	return rows, nil
}

// shownBy returns the test for a rule of a contract, by the rule's name: the keys of the maps driven and elsewhere, and
// those of pools, in the test's files.
func shownBy(files ...string) (map[string]string, error) {
	shown := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), contractTests+name, nil, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			entries, ok := spec.Values[0].(*ast.CompositeLit)
			if !ok {
				return true
			}
			for _, element := range entries.Elts {
				entry, ok := element.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				key, err := valueOf(entry.Key)
				if err != nil {
					continue
				}
				if _, drives := entry.Value.(*ast.FuncLit); drives {
					shown[key] = scene
				} else if text, err := valueOf(entry.Value); err == nil {
					shown[key] = text
				}
			}
			return false
		})
	}
	if len(shown) < 20 {
		return nil, fmt.Errorf("%s shows %d rules only", contractTests, len(shown))
	}
	return shown, nil
}

// clusterctlRows returns the checks of a release for the clusterctl contract, by its sections. The release must pass
// them.
func clusterctlRows(own *release.Release, config *release.Config, source *tree.Tree) ([][]string, error) {
	result, err := catalog.All().Run(context.Background(), &checks.Subject{Release: own, Config: &config.Providers[0],
		Source: &checks.Source{Tree: source, Config: config}})
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, f := range result.Findings {
		errs = append(errs, fmt.Errorf("the release doesn't pass %s: %s", f.ID, f.Message))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var rows [][]string
	for _, check := range catalog.All() {
		section, ok := strings.CutPrefix(check.Source, "clusterctl provider contract, ")
		if !ok || check.Run == nil || check.Group == checks.Upgrade {
			continue // it compares two releases
		}
		i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == section })
		if i < 0 {
			i = len(rows)
			rows = append(rows, []string{section, "", ""})
		}
		rows[i][1] += ". " + check.Title
		rows[i][2] += ", " + checkLink(check.ID, check.ID)
	}
	for _, row := range rows {
		row[1], row[2] = plain(row[1][2:]), row[2][2:]
	}
	return rows, nil
}

// checkLink returns a link to the page of a check.
func checkLink(text, id string) string {
	return fmt.Sprintf("[%s](../../pkg/checks/pages/%s.md)", text, id)
}
