package publish

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// readBackTries is how often a file that was just published is read until it is there: what serves
// downloads may be behind what takes uploads.
const readBackTries = 6

// clusterctlReadsAtOnce is how many files clusterctl's client reads at the same time: it keeps them
// in maps without a lock.
const clusterctlReadsAtOnce = 1

// newRepository is one of clusterctl's own makers of a repository client.
type newRepository func(context.Context, config.Provider, config.VariablesClient) (repository.Repository, error)

// serverClient returns clusterctl's own client for a repository on a server. Clusterctl finds the
// token under its variable; it is sent to the credential's hosts only.
func serverClient(ctx context.Context, newClient newRepository, url, variable string, c credential) (repository.Repository, error) {
	reader := config.NewMemoryReader()
	if err := reader.Init(ctx, ""); err != nil {
		return nil, fmt.Errorf("making a configuration for clusterctl's client: %w", err)
	}
	if c.secret != "" {
		reader.Set(variable, c.secret)
	}
	configuration, err := config.New(ctx, "", config.InjectReader(reader))
	if err != nil {
		return nil, fmt.Errorf("making a configuration for clusterctl's client: %w", err)
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport: &guard{base: systemTransport(), credential: c}, Timeout: attemptTime,
	})
	// The provider's name and type are not looked at.
	return newClient(ctx, config.NewProvider("read-back", url, release.ProviderTypes()[0]), configuration.Variables())
}

// readBackFiles compares files of a bundle with what read returns for them, so many at once.
func readBackFiles(ctx context.Context, b *bundle, files []release.File, opts Options, atOnce int, read func(ctx context.Context, name string) ([]byte, error)) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, f := range files {
		group.Go(func() error {
			opts.tell(fmt.Sprintf("reading %s back (%d of %d)", f.Name, i+1, len(files)))
			return readBackFile(groupCtx, b, f, opts, read)
		})
	}
	return group.Wait()
}

func readBackFile(ctx context.Context, b *bundle, f release.File, opts Options, read func(ctx context.Context, name string) ([]byte, error)) error {
	r := b.owner(f.Name)
	if r == nil {
		r = b.releases[0] // it lies beside them
	}
	var data []byte
	err := ctx.Err()
	for try := 0; try < readBackTries && ctx.Err() == nil; try++ {
		if try > 0 {
			if err := opts.remote.wait(ctx, pause(try)); err != nil {
				return &ReadBackError{Release: r, File: f.Name, Err: err}
			}
		}
		if data, err = read(ctx, f.Name); err == nil {
			break
		}
	}
	if err != nil {
		return &ReadBackError{Release: r, File: f.Name, Err: err}
	}
	if !bytes.Equal(data, f.Data) {
		return &ReadBackError{Release: r, File: f.Name}
	}
	return nil
}

// entryText returns entries of clusterctl's configuration as text for its clusterctl.yaml.
func entryText(entries []providerEntry) string {
	if len(entries) == 0 {
		return ""
	}
	type entry struct {
		Name string `json:"name"`
		Type string `json:"type"`
		URL  string `json:"url"`
	}
	list := make([]entry, 0, len(entries))
	for _, e := range entries {
		list = append(list, entry{Name: e.Name, Type: string(e.Type), URL: e.URL})
	}
	text, err := yaml.Marshal(map[string]any{"providers": list})
	if err != nil {
		return "" // strings can be written as YAML
	}
	return strings.TrimRight(string(text), "\n") + "\n"
}
