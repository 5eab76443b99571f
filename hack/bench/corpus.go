package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// checkOfCorpus returns the comparison of one check of all releases of the corpus with real clusterctl: `generate
// provider` for each, `generate cluster` for each of their templates. Without the corpus it prints that it is missing.
func checkOfCorpus(tool, clusterctl, work string) ([]comparison, error) {
	corpus := os.Getenv("CORPUS_DIR")
	if corpus == "" {
		corpus = filepath.Join("..", "shared", "corpus")
	}
	root, err := filepath.Abs(filepath.Join(corpus, "released"))
	if err != nil {
		return nil, fmt.Errorf("finding the corpus: %w", err)
	}
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("check of the corpus: NEEDS THE CORPUS of real providers in %s, or where CORPUS_DIR says\n\n", corpus)
		return nil, nil
	}
	releases, err := release.Read(root)
	if err != nil {
		return nil, err
	}
	c := comparison{
		title: fmt.Sprintf("check of %d releases", len(releases)), ours: "clusterctl-release check", aim: 0.1, mayFail: true, runs: 3,
		our:    [][]string{{tool, "check", root}},
		before: func() error { return nil },
	}
	values := map[string]string{}
	configuration := "providers:\n"
	flavors := 0
	for _, r := range releases {
		configuration += fmt.Sprintf("- name: %s\n  type: %s\n  url: %s\n", r.Provider.Name, r.Provider.Type,
			filepath.Join(root, r.Provider.Label(), r.Version, r.Provider.ComponentsFile()))
		name := r.Provider.Name + ":" + r.Version
		c.peer = append(c.peer, []string{clusterctl, "generate", "provider", "--" + r.Provider.ClusterctlFlag(), name})
		for _, f := range templates.Flavors(r) {
			variables, err := templates.Variables(f)
			if err != nil {
				return nil, err
			}
			for name, value := range templates.Guess(variables) {
				values[name] = value
			}
			flavor := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(f.Name, "cluster-template"), "-"), ".yaml")
			command := []string{clusterctl, "generate", "cluster", "demo", "--infrastructure", name, "--target-namespace", "default", "--kubernetes-version", "v1.36.3"}
			if flavor != "" {
				command = append(command, "--flavor", flavor)
			}
			c.peer = append(c.peer, command)
			flavors++
		}
	}
	path := filepath.Join(work, "corpus.yaml")
	if err := os.WriteFile(path, []byte(configuration), 0o600); err != nil {
		return nil, fmt.Errorf("writing clusterctl's configuration: %w", err)
	}
	for i := range c.peer {
		c.peer[i] = append(c.peer[i], "--config", path)
	}
	for name, value := range values {
		c.environment = append(c.environment, name+"="+value)
	}
	c.peers = fmt.Sprintf("clusterctl generate, %d providers and %d templates", len(releases), flavors)
	return []comparison{c}, nil
}
