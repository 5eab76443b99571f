package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
)

// docs are the documentation pages of the provider.
var docs = []string{
	"explanation/machine-pools.md", "how-to/addresses.md", "how-to/autoscaling.md", "how-to/backup.md", "how-to/flatcar-talos.md", "how-to/gpus.md",
	"how-to/hardening.md", "how-to/hosts.md", "how-to/images-and-hardware.md", "how-to/in-place-updates.md", "how-to/load-balancers.md",
	"how-to/maintenance.md", "how-to/monitoring.md", "how-to/operations.md", "how-to/orphans.md", "how-to/tenants.md", "how-to/troubleshooting.md",
	"how-to/upgrading.md", "how-to/upgrading-kubernetes.md", "how-to/zones.md", "reference/metrics.md",
}

// ofOthers are names of Cluster API and flags of other programs in the docs.
var ofOthers = []string{
	"ExternalIP", "HealthCheckSucceeded", "InternalIP", "OnDelete", "OwnerRemediated", "RuntimeSDK",
	"AllowStreamLocalForwarding", "MaxSessions", "MaxStartups",
	"--cascade", "--cloud-provider", "--fail-on", "--help",
}

var (
	// code is inline code of one word, and number a number in parentheses after it.
	code = regexp.MustCompile("`([^`\\s]+)`(?: \\(([0-9]+)\\))?")
	// name is a condition, reason, feature or value: several words joined.
	name   = regexp.MustCompile(`^[A-Z]+[a-z]+(?:[A-Z]+[a-z]*)+$`)
	option = regexp.MustCompile(`^(--[a-z][a-z-]*)(?:=.*)?$`)
	ours   = regexp.MustCompile(`^(?:caplv_[a-z_]+|libvirt\.infrastructure\.cluster\.x-k8s\.io/[a-z-]+)$`)
	// word is a string in Go's sources, or a constant of Cluster API that one of the provider's constants equals.
	word = regexp.MustCompile(`"([^"\s]+)"|clusterv1\.(\w+?)(?:Reason|Condition)\b`)
)

// TestDocsNamesExist checks that each condition, reason, feature, annotation, metric and flag in the docs exists in the
// code, and that flags have the documented defaults.
func TestDocsNamesExist(t *testing.T) {
	g := NewWithT(t)
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	newOptions().addFlags(flags)
	known, checked := words(g), 0
	for _, rule := range alertRules(g) {
		known[rule.Alert] = true
	}
	for _, page := range docs {
		content, err := os.ReadFile(filepath.Join("..", "docs", page))
		g.Expect(err).ToNot(HaveOccurred())
		for _, found := range code.FindAllStringSubmatch(string(content), -1) {
			text, number := found[1], found[2]
			if is := option.FindStringSubmatch(text); is != nil && !slices.Contains(ofOthers, is[1]) {
				checked++
				defined := flags.Lookup(strings.TrimPrefix(is[1], "--"))
				g.Expect(defined).ToNot(BeNil(), "%s: the manager has no flag %s", page, is[1])
				if number != "" {
					g.Expect(defined.DefValue).To(Equal(number), "%s: the default of %s", page, is[1])
				}
			}
			if (name.MatchString(text) || ours.MatchString(text)) && !slices.Contains(ofOthers, text) {
				checked++
				g.Expect(known[text]).To(BeTrue(), "%s names %s, which isn't in the code", page, text)
			}
		}
	}
	g.Expect(checked).To(BeNumerically(">=", 45))
}

// TestDocsListTheMetrics checks that the table has exactly the registered metrics, with their types and labels.
func TestDocsListTheMetrics(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join("..", "docs", "reference", "metrics.md"))
	g.Expect(err).ToNot(HaveOccurred())
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(caplv_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|").FindAllStringSubmatch(string(content), -1) {
		documented[row[1]] = strings.TrimSpace(row[2] + " " + strings.ReplaceAll(strings.ReplaceAll(row[3], "`", ""), " ", ""))
	}
	registered := map[string]string{}
	described := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: {([^}]*)}`)
	for _, metric := range metrics.All {
		descriptions := make(chan *prometheus.Desc, 10)
		metric.Describe(descriptions)
		kind := "gauge"
		switch metric.(type) {
		case *prometheus.CounterVec:
			kind = "counter"
		case *prometheus.HistogramVec:
			kind = "histogram"
		}
		found := described.FindStringSubmatch((<-descriptions).String())
		registered[found[1]] = strings.TrimSpace(kind + " " + found[2])
	}
	g.Expect(documented).To(Equal(registered))
}

// words returns all words in the sources of the provider that are string literals.
func words(g *WithT) map[string]bool {
	known := map[string]bool{}
	for _, folder := range []string{"api", "feature", "internal/controllers", "internal/metrics"} {
		for _, found := range word.FindAllStringSubmatch(sources(g, folder), -1) {
			known[found[1]+found[2]] = true
		}
	}
	return known
}

// TestTroubleshooting checks that docs/how-to/troubleshooting.md has a row for each reason of a condition except the
// good ones, and quotes messages of the provider or of clusterctl, with ... for variable parts.
func TestTroubleshooting(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join("..", "docs", "how-to", "troubleshooting.md"))
	g.Expect(err).ToNot(HaveOccurred())
	page := string(content)
	conditions, err := os.ReadFile(filepath.Join("api", "v1alpha1", "conditions.go"))
	g.Expect(err).ToNot(HaveOccurred())
	reasons := regexp.MustCompile(`Reason\s+= (?:"(\w+)"|clusterv1\.(\w+)Reason)`).FindAllStringSubmatch(string(conditions), -1)
	g.Expect(len(reasons)).To(BeNumerically(">", 70))
	wells := regexp.MustCompile("(?m)^These reasons say that all is well: .*$").FindString(page)
	g.Expect(wells).ToNot(BeEmpty())
	for _, reason := range reasons {
		name := regexp.QuoteMeta("`" + reason[1] + reason[2] + "`")
		// A row: the conditions, one or several reasons, the cause, and the action.
		row := regexp.MustCompile(`(?m)^\| [^|]+ \| [^|]*` + name + `[^|]* \| [^|]{4,} \| [^|]{4,} \|$`)
		g.Expect(row.MatchString(page)).ToNot(Equal(strings.Contains(wells, "`"+reason[1]+reason[2]+"`")),
			"%s needs a row or must be listed as a good reason, and not both", reason[1]+reason[2])
	}

	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	g.Expect(err).ToNot(HaveOccurred())
	var code strings.Builder
	for _, folder := range []string{filepath.Join(strings.TrimSpace(string(folder)), "cmd", "clusterctl", "client"), "api", "internal"} {
		code.WriteString(sources(g, folder))
	}
	messages := regexp.MustCompile(`(?m)^\| "([^"]+)" \|`).FindAllStringSubmatch(page, -1)
	g.Expect(len(messages)).To(BeNumerically(">", 25))
	for _, message := range messages {
		for part := range strings.SplitSeq(message[1], "...") {
			g.Expect(strings.Contains(code.String(), strings.TrimSpace(part))).To(BeTrue(), "no source has %q", part)
		}
	}
}

// sources returns the Go code of a folder, without tests.
func sources(g *WithT, folder string) string {
	var code strings.Builder
	g.Expect(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		code.Write(content)
		return err
	})).To(Succeed())
	return code.String()
}
