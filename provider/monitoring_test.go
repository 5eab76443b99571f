package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

// alertRule is an alert of docs/monitoring/alerts.yaml.
type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alertRules(g *WithT) []alertRule {
	var rules struct{ Groups []struct{ Rules []alertRule } }
	content, err := os.ReadFile("../docs/monitoring/alerts.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(yaml.Unmarshal(content, &rules)).To(Succeed())
	g.Expect(rules.Groups).To(HaveLen(1))
	return rules.Groups[0].Rules
}

// TestAlerts checks that Prometheus accepts the alerts and the scrape configuration, that each alert fires in its test,
// and that no alert fires for a working fleet.
func TestAlerts(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile("../docs/how-to/monitoring.md")
	g.Expect(err).ToNot(HaveOccurred())
	_, scraping, _ := strings.Cut(string(page), "```yaml\nscrape_configs:")
	scraping, _, _ = strings.Cut(scraping, "```")
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	g.Expect(os.WriteFile(config, []byte("scrape_configs:"+scraping), 0o600)).To(Succeed())

	promtool := pinned.Tool(t, "promtool")
	for _, arguments := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"},
		{"test", "rules", "alerts_test.yaml"},
		{"check", "config", "--syntax-only", config},
	} {
		cmd := exec.CommandContext(t.Context(), promtool, arguments...)
		cmd.Dir = "../docs/monitoring"
		out, err := cmd.CombinedOutput()
		g.Expect(err).ToNot(HaveOccurred(), "promtool %s: %s", arguments, out)
	}

	tests, err := os.ReadFile("../docs/monitoring/alerts_test.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	for _, rule := range alertRules(g) {
		g.Expect(string(tests)).To(ContainSubstring(`alertname="%s"`, rule.Alert), "the alert has no test in which it fires")
		g.Expect(string(page)).To(ContainSubstring("| `%s` | %s |", rule.Alert, rule.Labels["severity"]), "the table of alerts")
	}
}

// TestRunbooks: each alert has a summary, a description and a link to a heading that exists.
func TestRunbooks(t *testing.T) {
	g := NewWithT(t)
	for _, rule := range alertRules(g) {
		g.Expect(rule.Annotations).To(And(HaveLen(3), HaveKeyWithValue("summary", Not(BeEmpty())), HaveKeyWithValue("description", Not(BeEmpty()))), rule.Alert)
		page, ours := strings.CutPrefix(rule.Annotations["runbook_url"], "https://github.com/clusterctl-release/clusterctl-release/blob/main/")
		g.Expect(ours).To(BeTrue(), rule.Alert)
		page, anchor, _ := strings.Cut(page, "#")
		content, err := os.ReadFile(filepath.Join("..", page))
		g.Expect(err).ToNot(HaveOccurred(), rule.Alert)
		var anchors []string
		for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(content), -1) {
			anchors = append(anchors, strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-"))
		}
		g.Expect(anchors).To(ContainElement(anchor), rule.Alert)
	}
}

// TestPrometheusRule checks that the command in docs/how-to/monitoring.md creates a PrometheusRule from the alerts.
func TestPrometheusRule(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile("../docs/how-to/monitoring.md")
	g.Expect(err).ToNot(HaveOccurred())
	command := regexp.MustCompile("(?s)```sh\n(\\{\n.*?\\} \\| )kubectl apply -f -\n```").FindStringSubmatch(string(page))
	g.Expect(command).To(HaveLen(2))
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", command[1]+"cat")
	cmd.Dir = ".."
	out, err := cmd.Output()
	g.Expect(err).ToNot(HaveOccurred())
	var made, plain map[string]any
	g.Expect(yaml.Unmarshal(out, &made)).To(Succeed())
	content, err := os.ReadFile("../docs/monitoring/alerts.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(yaml.Unmarshal(content, &plain)).To(Succeed())
	g.Expect(made).To(And(HaveKeyWithValue("kind", "PrometheusRule"), HaveKeyWithValue("spec", Equal(any(plain)))))
}

// TestMonitoringNamesMetrics checks that Prometheus can parse all expressions of the alerts and the dashboard, and that
// their metrics and labels are registered in the manager.
func TestMonitoringNamesMetrics(t *testing.T) {
	g := NewWithT(t)
	var expressions []string
	for _, rule := range alertRules(g) {
		expressions = append(expressions, rule.Expr)
	}
	var dashboard struct {
		Panels     []struct{ Targets []struct{ Expr string } }
		Templating struct {
			List []struct{ Query any }
		}
	}
	content, err := os.ReadFile("../docs/monitoring/dashboard.json")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(json.Unmarshal(content, &dashboard)).To(Succeed())
	for _, panel := range dashboard.Panels {
		g.Expect(panel.Targets).ToNot(BeEmpty())
		for _, target := range panel.Targets {
			expressions = append(expressions, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
	}

	for _, variable := range dashboard.Templating.List {
		if values := regexp.MustCompile(`label_values\((\w+), (\w+)\)`).FindStringSubmatch(fmt.Sprint(variable.Query)); values != nil {
			expressions = append(expressions, fmt.Sprintf("sum by (%s) (%s)", values[2], values[1]))
		}
	}

	input, err := json.Marshal(expressions)
	g.Expect(err).ToNot(HaveOccurred())
	cmd := exec.CommandContext(t.Context(), "go", "run", "./selectors")
	cmd.Dir = "../hack/tools/promtool"
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	g.Expect(err).ToNot(HaveOccurred(), stderr.String())
	var parsed []struct {
		Metrics  map[string][]string
		Grouping []string
	}
	g.Expect(json.Unmarshal(out, &parsed)).To(Succeed())
	g.Expect(parsed).To(HaveLen(len(expressions)))

	registered := registeredMetrics(g)
	for i, expression := range parsed {
		g.Expect(expression.Metrics).ToNot(BeEmpty(), expressions[i])
		for metric, used := range expression.Metrics {
			labels, known := registered[metric]
			if family := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(metric, ""); !known && family != metric {
				labels, known = registered[family]
				labels = append(slices.Clone(labels), "le")
			}
			g.Expect(known).To(BeTrue(), "the manager has no metric %s: %s", metric, expressions[i])
			for _, label := range append(used, expression.Grouping...) {
				g.Expect(labels).To(ContainElement(label), "the labels of %s: %s", metric, expressions[i])
			}
		}
	}
}

// dashboardPanel has the fields of a panel that Grafana needs.
type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ RefID string }
}

// TestDashboard checks that Grafana can show the dashboard: unique IDs, panels on the grid of 24 columns that don't
// overlap, and existing types, units and variables.
func TestDashboard(t *testing.T) {
	g := NewWithT(t)
	var dashboard struct {
		UID, Title    string
		SchemaVersion int
		Panels        []dashboardPanel
		Templating    struct{ List []struct{ Name, Type string } }
	}
	content, err := os.ReadFile("../docs/monitoring/dashboard.json")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(json.Unmarshal(content, &dashboard)).To(Succeed())
	g.Expect(dashboard.UID).To(MatchRegexp("^[a-zA-Z0-9_-]{1,40}$"))
	g.Expect(dashboard.Title).ToNot(BeEmpty())
	g.Expect(dashboard.SchemaVersion).To(BeNumerically(">=", 36), "older versions refer to data sources by name")

	variables := []string{"$__rate_interval"}
	for _, variable := range dashboard.Templating.List {
		variables = append(variables, "$"+variable.Name, "${"+variable.Name+"}")
	}
	used := regexp.MustCompile(`\$(\w+|\{\w+\})`).FindAllString(string(content), -1)
	g.Expect(used).ToNot(BeEmpty())
	for _, name := range used {
		g.Expect(variables).To(ContainElement(name), "an unknown variable")
	}

	ids, covered := map[int]string{}, map[[2]int]string{}
	for _, panel := range dashboard.Panels {
		g.Expect(ids).ToNot(HaveKey(panel.ID), panel.Title)
		ids[panel.ID] = panel.Title
		g.Expect(panel.ID).To(BeNumerically(">", 0), panel.Title)
		g.Expect(panel.Title).ToNot(BeEmpty())
		g.Expect(panel.Description).ToNot(BeEmpty(), panel.Title)
		g.Expect([]string{"stat", "state-timeline", "timeseries"}).To(ContainElement(panel.Type), panel.Title)
		g.Expect([]string{"short", "ops", "s", "Bps", "bytes", "percentunit"}).To(ContainElement(panel.FieldConfig.Defaults.Unit), panel.Title)
		g.Expect(panel.Datasource.UID).To(Equal("${datasource}"), panel.Title)
		refs := map[string]bool{}
		for _, target := range panel.Targets {
			g.Expect(target.RefID).ToNot(BeEmpty(), panel.Title)
			g.Expect(refs).ToNot(HaveKey(target.RefID), panel.Title)
			refs[target.RefID] = true
		}
		at := panel.GridPos
		g.Expect(at.W > 0 && at.H > 0 && at.X >= 0 && at.Y >= 0 && at.X+at.W <= 24).To(BeTrue(), "%s is outside of the grid: %+v", panel.Title, at)
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				g.Expect(covered).ToNot(HaveKey([2]int{x, y}), "%s covers another panel", panel.Title)
				covered[[2]int{x, y}] = panel.Title
			}
		}
	}
}

// registeredMetrics returns the metrics of the manager with their labels.
func registeredMetrics(g *WithT) map[string][]string {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		ctrlmetrics.Registry.(prometheus.Collector).Describe(descriptions)
	}()
	described := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: {([^}]*)}`)
	registered := map[string][]string{}
	for description := range descriptions {
		if found := described.FindStringSubmatch(description.String()); found != nil {
			registered[found[1]] = strings.Split(found[2], ",")
		}
	}
	g.Expect(registered).ToNot(BeEmpty())
	return registered
}
