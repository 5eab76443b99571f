package publish

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// readBackTries is how often a file that was just published is read until it is there: what serves
// downloads may be behind what takes uploads.
const readBackTries = 6

// clusterctlReadsAtOnce is how many files clusterctl's client reads at the same time: it keeps them
// in maps without a lock.
const clusterctlReadsAtOnce = 1

// readBackFiles compares files of a version with what read returns for them, so many at once.
func readBackFiles(ctx context.Context, v *store.Version, files []release.File, opts Options, atOnce int, read func(ctx context.Context, name string) ([]byte, error)) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, f := range files {
		group.Go(func() error {
			opts.tell(fmt.Sprintf("reading %s back (%d of %d)", f.Name, i+1, len(files)))
			return readBackFile(groupCtx, v, f, opts, read)
		})
	}
	return group.Wait()
}

func readBackFile(ctx context.Context, v *store.Version, f release.File, opts Options, read func(ctx context.Context, name string) ([]byte, error)) error {
	r := v.Owner(f.Name)
	var data []byte
	err := ctx.Err()
	for try := 0; try < readBackTries && ctx.Err() == nil; try++ {
		if try > 0 {
			if err := opts.Network.Wait(ctx, transport.Pause(try)); err != nil {
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
func entryText(entries []store.Entry) string {
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
