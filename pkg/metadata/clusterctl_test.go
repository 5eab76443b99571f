package metadata_test

import (
	"context"
	"testing"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// readByClusterctl returns the result of clusterctl's own metadata client for a text.
func readByClusterctl(t testing.TB, data []byte) (*clusterctlv1.Metadata, error) {
	t.Helper()
	const version = "v0.1.0"
	reader := config.NewMemoryReader()
	if err := reader.Init(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	client, err := config.New(t.Context(), "", config.InjectReader(reader))
	if err != nil {
		t.Fatal(err)
	}
	files := repository.NewMemoryRepository().
		WithPaths("", "infrastructure-components.yaml").
		WithDefaultVersion(version).
		WithFile(version, release.MetadataFile, data)
	provider := config.NewProvider("test", "https://example.com/test/releases/latest/infrastructure-components.yaml", clusterctlv1.InfrastructureProviderType)
	opened, err := repository.New(t.Context(), provider, client, repository.InjectRepository(files))
	if err != nil {
		t.Fatal(err)
	}
	return opened.Metadata(version).Get(t.Context())
}

// mustAgree fails the test if clusterctl reads other series from a file than Parse.
func mustAgree(t testing.TB, file *metadata.File) {
	t.Helper()
	read, err := readByClusterctl(t, file.Data)
	if err != nil {
		t.Fatalf("clusterctl refuses a file that Parse accepts: %v\n%s", err, file.Data)
	}
	series := file.Series()
	if len(read.ReleaseSeries) != len(series) {
		t.Fatalf("Parse reads %d series, want clusterctl's %d", len(series), len(read.ReleaseSeries))
	}
	for i, s := range read.ReleaseSeries {
		if s.Major != series[i].Major || s.Minor != series[i].Minor || s.Contract != series[i].Contract {
			t.Errorf("series %d: Parse reads %v, want clusterctl's %v", i, series[i], s)
		}
	}
}

const head = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\n"

// TestParseAgreesWithClusterctl checks that Parse and clusterctl accept the same texts.
func TestParseAgreesWithClusterctl(t *testing.T) {
	for name, test := range map[string]struct {
		text   string
		accept bool
	}{
		"plain":                {head + "releaseSeries:\n- major: 1\n  minor: 2\n  contract: v1beta1\n", true},
		"no kind":              {"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nreleaseSeries:\n- {major: 1, minor: 2, contract: v1beta1}\n", true},
		"empty kind":           {"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: \"\"\nreleaseSeries:\n- {major: 1, minor: 2, contract: v1beta1}\n", true},
		"JSON":                 {`{"apiVersion":"clusterctl.cluster.x-k8s.io/v1alpha3","kind":"Metadata","releaseSeries":[{"major":1,"minor":2,"contract":"v1beta1"}]}`, true},
		"CRLF":                 {"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\r\nkind: Metadata\r\nreleaseSeries:\r\n- major: 1\r\n  minor: 2\r\n  contract: v1beta1\r\n", true},
		"byte order mark":      {"\uFEFF" + head + "releaseSeries:\n- major: 1\n  minor: 2\n  contract: v1beta1\n", true},
		"no final line break":  {head + "releaseSeries:\n- major: 1\n  minor: 2\n  contract: v1beta1", true},
		"object metadata":      {head + "metadata:\n  name: x\n  labels: {a: b}\nreleaseSeries:\n- major: 1\n  minor: 2\n  contract: v1beta1\n", true},
		"no major, that is 0":  {head + "releaseSeries:\n- minor: 2\n  contract: v1beta1\n", true},
		"no minor, that is 0":  {head + "releaseSeries:\n- major: 2\n  contract: v1beta1\n", true},
		"alias":                {head + "releaseSeries:\n- major: 1\n  minor: 2\n  contract: &c v1beta1\n- major: 1\n  minor: 1\n  contract: *c\n", true},
		"quotes":               {head + "releaseSeries:\n- major: 1\n  minor: 2\n  contract: 'v1beta1'\n", true},
		"folded contract":      {head + "releaseSeries:\n- major: 1\n  minor: 2\n  contract: >-\n    v1beta1\n", true},
		"series given twice":   {head + "releaseSeries:\n- {major: 1, minor: 2, contract: v1beta1}\n- {major: 1, minor: 2, contract: v1beta1}\n", true},
		"empty":                {"", false},
		"only comments":        {"# nothing\n", false},
		"no mapping":           {"- a\n", false},
		"no YAML":              {"a: [\n", false},
		"tab as indentation":   {head + "releaseSeries:\n\t- major: 1\n", false},
		"no apiVersion":        {"kind: Metadata\nreleaseSeries:\n- {major: 1, minor: 2, contract: v1beta1}\n", false},
		"other apiVersion":     {"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha4\nkind: Metadata\nreleaseSeries:\n- {major: 1, minor: 2, contract: v1beta1}\n", false},
		"other kind":           {"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: ProviderMetadata\nreleaseSeries:\n- {major: 1, minor: 2, contract: v1beta1}\n", false},
		"no series":            {head, false},
		"series null":          {head + "releaseSeries:\n", false},
		"series empty":         {head + "releaseSeries: []\n", false},
		"series no list":       {head + "releaseSeries: {major: 1}\n", false},
		"series no mapping":    {head + "releaseSeries:\n- v1.2\n", false},
		"quoted number":        {head + "releaseSeries:\n- {major: \"1\", minor: 2, contract: v1beta1}\n", false},
		"number with letters":  {head + "releaseSeries:\n- {major: v1, minor: 2, contract: v1beta1}\n", false},
		"number with fraction": {head + "releaseSeries:\n- {major: 1, minor: 2.5, contract: v1beta1}\n", false},
		"number too large":     {head + "releaseSeries:\n- {major: 1, minor: 2147483648, contract: v1beta1}\n", false},
		"contract a number":    {head + "releaseSeries:\n- {major: 1, minor: 2, contract: 1}\n", false},
		"contract a list":      {head + "releaseSeries:\n- {major: 1, minor: 2, contract: [v1beta1]}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, refused := readByClusterctl(t, []byte(test.text))
			if (refused == nil) != test.accept {
				t.Errorf("clusterctl accepts the text: %v, want %v: %v", refused == nil, test.accept, refused)
			}
			file, err := metadata.Parse("metadata.yaml", []byte(test.text))
			if (err == nil) != test.accept {
				t.Fatalf("Parse accepts the text: %v, want %v: %v", err == nil, test.accept, err)
			}
			if err == nil {
				mustAgree(t, file)
			}
		})
	}
}

// TestCheckWarnsOfAcceptedTexts checks that Check warns about texts that clusterctl accepts but reads differently
// than intended, or that only some versions accept.
func TestCheckWarnsOfAcceptedTexts(t *testing.T) {
	const entry = "releaseSeries:\n- major: 1\n  minor: 2\n  contract: v1beta1\n"
	for name, test := range map[string]struct {
		text string
		id   metadata.ProblemID
	}{
		"unknown field":           {head + "version: 1\n" + entry, metadata.ProblemParse},
		"unknown field of series": {head + entry + "  patch: 3\n", metadata.ProblemParse},
		"unknown object metadata": {head + "metadata: {labeled: x}\n" + entry, metadata.ProblemParse},
		"key given twice":         {head + "kind: Metadata\n" + entry, metadata.ProblemParse},
		"key of series twice":     {head + entry + "  contract: v1beta2\n", metadata.ProblemParse},
		"second document":         {head + entry + "---\n" + head + entry, metadata.ProblemParse},
		"empty second document":   {head + entry + "---\n", metadata.ProblemParse},
		"no contract":             {head + entry + "- major: 1\n  minor: 1\n", metadata.ProblemContractKnown},
		"empty contract":          {head + entry + "- {major: 1, minor: 1, contract: }\n", metadata.ProblemContractKnown},
		"contract with group":     {head + "releaseSeries:\n- {major: 1, minor: 2, contract: v1beta1}\n- {major: 1, minor: 1, contract: cluster.x-k8s.io/v1beta1}\n", metadata.ProblemContractKnown},
		"neither major nor minor": {head + "releaseSeries:\n- contract: v1beta1\n", metadata.ProblemParse},
		"empty number":            {head + "releaseSeries:\n- {major: , minor: 2, contract: v1beta1}\n", metadata.ProblemParse},
		"negative number":         {head + "releaseSeries:\n- {major: 1, minor: -2, contract: v1beta1}\n", metadata.ProblemParse},
		"number as a fraction":    {head + "releaseSeries:\n- {major: 1, minor: 1.0, contract: v1beta1}\n", metadata.ProblemParse},
		"octal number":            {head + "releaseSeries:\n- {major: 1, minor: 010, contract: v1beta1}\n", metadata.ProblemParse},
		"hexadecimal number":      {head + "releaseSeries:\n- {major: 1, minor: 0x10, contract: v1beta1}\n", metadata.ProblemParse},
		"merge key":               {head + "releaseSeries:\n- &a {major: 1, minor: 2, contract: v1beta1}\n- {<<: *a, minor: 3}\n", metadata.ProblemParse},
		"alias for a series":      {head + "releaseSeries:\n- &a {major: 1, minor: 2, contract: v1beta1}\n- *a\n", metadata.ProblemParse},
	} {
		t.Run(name, func(t *testing.T) {
			file := parse(t, test.text)
			mustAgree(t, file)
			problems := check(file, nil)
			if len(problems) == 0 || problems[0].ID != test.id || problems[0].Severity != metadata.SeverityWarning || problems[0].Line == 0 {
				t.Errorf("problems = %v, want a warning %s", short(problems), test.id)
			}
		})
	}
}

// TestContractsAgreeWithClusterctl checks that Check and clusterctl's own client accept the same contracts of the
// newest series.
func TestContractsAgreeWithClusterctl(t *testing.T) {
	const version = "v0.1.0"
	for _, contract := range append(metadata.KnownContracts(), "v1beta3", "") {
		text := list("0.1 " + contract)
		reader := config.NewMemoryReader()
		if _, err := reader.AddProvider("test", clusterctlv1.InfrastructureProviderType, "https://example.com/infrastructure-components.yaml"); err != nil {
			t.Fatal(err)
		}
		configClient, err := config.New(t.Context(), "", config.InjectReader(reader))
		if err != nil {
			t.Fatal(err)
		}
		files := repository.NewMemoryRepository().WithPaths("", "infrastructure-components.yaml").WithDefaultVersion(version).
			WithFile(version, release.MetadataFile, []byte(text)).
			WithFile(version, "infrastructure-components.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: test}\n"))
		c, err := client.New(t.Context(), "", client.InjectConfig(configClient),
			client.InjectRepositoryFactory(func(ctx context.Context, input client.RepositoryClientFactoryInput) (repository.Client, error) {
				return repository.New(ctx, input.Provider, configClient, repository.InjectRepository(files))
			}))
		if err != nil {
			t.Fatal(err)
		}
		_, refused := c.GenerateProvider(t.Context(), "test:"+version, clusterctlv1.InfrastructureProviderType, client.ComponentsOptions{})
		if problems := check(parse(t, text), nil); (len(problems) > 0) != (refused != nil) {
			t.Errorf("contract %q: clusterctl returns %v, the problems are %v", contract, refused, short(problems))
		}
	}
}
