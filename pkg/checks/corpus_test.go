package checks_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// corpusUnit is a released provider of the corpus.
type corpusUnit struct {
	release *release.Release
	// refused is the error of `clusterctl generate provider`, or "".
	refused string
	result  *checks.Result
}

var (
	corpusOnce sync.Once
	corpus     map[string]*corpusUnit
)

// corpusUnits returns the released providers of the corpus with their check results, by label.
func corpusUnits(t *testing.T) map[string]*corpusUnit {
	t.Helper()
	pinned.Corpus(t)
	corpusOnce.Do(func() { corpus = checkCorpus(t) })
	return corpus
}

// checkCorpus reads and checks the released providers of the corpus.
func checkCorpus(t *testing.T) map[string]*corpusUnit {
	t.Helper()
	corpus := pinned.Corpus(t)
	data, err := os.ReadFile(filepath.Join(corpus, "generate-provider.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]*corpusUnit{}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		columns := strings.Split(line, "\t")
		if i == 0 || len(columns) < 4 {
			continue
		}
		unit := &corpusUnit{release: readCorpusUnit(t, corpus, columns[0], columns[1])}
		if columns[3] != "ok" {
			unit.refused = columns[4]
		}
		units[columns[0]] = unit
	}
	if len(units) < 25 {
		t.Fatalf("the corpus has %d units, want at least 25", len(units))
	}
	started := time.Now()
	var wait sync.WaitGroup
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	for label, unit := range units {
		wait.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			var err error
			if unit.result, err = catalog.All().Run(t.Context(), &checks.Subject{Release: unit.release}); err != nil {
				t.Errorf("%s: %v", label, err)
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d units in %v", len(units), time.Since(started).Round(time.Millisecond))
	return units
}

// readCorpusUnit returns the release in one version's folder.
func readCorpusUnit(t *testing.T, corpus, label, version string) *release.Release {
	t.Helper()
	provider, err := release.ParseLabel(label)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(corpus, "released", label, version)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []release.File
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, release.File{Name: entry.Name(), Data: data})
	}
	r, err := release.New(provider, version, files)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// causes maps parts of clusterctl's errors to the checks that report the same cause.
var causes = map[string]string{
	"repository name must be canonical":   "image-canonical",
	`failed to read "metadata.yaml"`:      "metadata-present",
	"does not match any release series":   "series-present",
	"no more than one resource with Kind": "namespace-single",
}

// backedByMust are the errors in units that clusterctl accepts, each with the contract's rule that the unit breaks.
var backedByMust = []struct{ unit, id, rule string }{
	{"control-plane-kamaji", "manager-container", "the container that executes the controller binary MUST be called manager"},
	{"infrastructure-kubevirt", "contract-matches-crds", "the contract version for a release series must match the one that is declared in the CRDs"},
	{"infrastructure-linode-linode", "contract-matches-crds", "the contract version for a release series must match the one that is declared in the CRDs"},
}

// foundIn are the units in which checks of components and CRDs find something. It includes the examples of all
// classes of defects in the corpus; in all other units the checks must find nothing.
var foundIn = map[string][]string{
	"image-canonical":              {"bootstrap-k0smotron", "infrastructure-exoscale", "infrastructure-scaleway-scaleway", "infrastructure-vultr"},
	"contract-matches-crds":        {"infrastructure-kubevirt", "infrastructure-linode-linode"},
	"crd-contract-version":         {"infrastructure-aws", "infrastructure-docker", "infrastructure-openstack"},
	"manager-container":            {"control-plane-kamaji", "infrastructure-exoscale"},
	"cluster-role-binding-subject": {"control-plane-kamaji"},
	"crd-conversion":               {"bootstrap-k0smotron", "infrastructure-metal3"},
	"webhook-service":              {"control-plane-talos"},
	"placeholder":                  {"infrastructure-scaleway-scaleway"},
	"label-in-selector": {
		"addon-helm", "bootstrap-k0smotron", "control-plane-kamaji", "infrastructure-k8sproxmox", "infrastructure-kubevirt",
		"infrastructure-scaleway-scaleway", "infrastructure-vultr", "runtime-extension-test",
	},
	"provider-label": {
		"addon-helm", "bootstrap-k0smotron", "bootstrap-microk8s", "control-plane-kamaji", "infrastructure-exoscale", "infrastructure-harvester-harvester",
		"infrastructure-k8sproxmox", "infrastructure-kubevirt", "infrastructure-linode-linode", "infrastructure-lxcincus",
		"infrastructure-scaleway-scaleway", "runtime-extension-test",
	},
	"ca-injection":               {"ipam-in-cluster"},
	"components-parse":           nil,
	"variable-syntax":            nil,
	"variable-default":           nil,
	"duplicate-object":           nil,
	"namespace-single":           nil,
	"namespace-missing":          nil,
	"object-namespace":           nil,
	"cluster-scoped-kind":        nil,
	"manager-deployment":         nil,
	"namespace-flag":             nil,
	"watch-filter-flag":          nil,
	"rbac-subject":               nil,
	"rbac-role":                  nil,
	"leader-election-permission": nil,
	"aggregated-role":            nil, // all kinds are in groups that core's role covers, or that core does not access
	"certificate-dns":            nil,
	"certificate-issuer":         nil,
	"crd-valid":                  nil,
	"crd-name":                   nil, // one has the annotation
	"crd-status-subresource":     nil,
	"crd-storage-version":        nil,
	"as-clusterctl":              nil, // other checks report all of clusterctl's refusals
}

// aboutInstalling reports whether a check is about files that `clusterctl generate provider` reads.
func aboutInstalling(t *testing.T, id string) bool {
	t.Helper()
	check, err := catalog.All().Find(id)
	if err != nil {
		t.Fatal(err)
	}
	return check.Group == checks.Repository || check.Group == checks.Metadata || check.Group == checks.Components
}

// TestCorpusAgreesWithClusterctl checks that units that clusterctl refuses have an error for the cause, and that
// units that it accepts have errors only if they break a MUST.
func TestCorpusAgreesWithClusterctl(t *testing.T) {
	for label, unit := range corpusUnits(t) {
		errors := map[string]bool{}
		for _, f := range unit.result.Findings {
			if f.Severity == checks.Error && aboutInstalling(t, f.ID) {
				errors[f.ID] = true
			}
		}
		if unit.refused != "" {
			named := false
			for words, id := range causes {
				named = named || (strings.Contains(unit.refused, words) && errors[id])
			}
			if !named {
				t.Errorf("%s: clusterctl refuses the unit, but no error reports the cause: %s", label, unit.refused)
			}
			continue
		}
		for id := range errors {
			if !slices.ContainsFunc(backedByMust, func(b struct{ unit, id, rule string }) bool { return b.unit == label && b.id == id }) {
				t.Errorf("%s: clusterctl accepts the unit, but %s is an error", label, id)
			}
		}
	}
}

// TestCorpusFindings checks that each check finds something in the listed units, and nothing in the others.
func TestCorpusFindings(t *testing.T) {
	requireFound(t, corpusUnits(t), foundIn)
}

// requireFound compares the units in which checks find something with the wanted ones.
func requireFound(t *testing.T, units map[string]*corpusUnit, wantedIn map[string][]string) {
	t.Helper()
	for id, wanted := range wantedIn {
		var found []string
		for label, unit := range units {
			if slices.ContainsFunc(unit.result.Findings, func(f checks.Finding) bool { return f.ID == id }) {
				found = append(found, label)
			}
		}
		slices.Sort(found)
		if !slices.Equal(found, wanted) {
			t.Errorf("%s is found in %v, want %v", id, found, wanted)
		}
	}
}

// TestCorpusImageTags checks that image-tag does not report images of sidecars, which have their own versions.
func TestCorpusImageTags(t *testing.T) {
	for label, unit := range corpusUnits(t) {
		for _, f := range unit.result.Findings {
			if f.ID == "image-tag" && !strings.Contains(f.Message, "of container manager") && !strings.Contains(f.Message, "moves") {
				t.Errorf("%s: %s", label, f.Message)
			}
		}
	}
}

// TestCorpusPlaces checks that findings about objects have a file, a document, a line and a column.
func TestCorpusPlaces(t *testing.T) {
	for label, unit := range corpusUnits(t) {
		for _, f := range unit.result.Findings {
			if check, err := catalog.All().Find(f.ID); err != nil || check.Group != checks.Components || f.Object.Kind == "" {
				continue
			}
			if f.File == "" || f.Document == 0 || f.Line == 0 || f.Column == 0 {
				t.Errorf("%s: %s has no place: %+v", label, f.ID, f.Place)
			}
		}
	}
}
