package publish

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/adrg/xdg"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// publishTime is the time limit for publishing as a whole, including waits for rate limits.
	publishTime = 45 * time.Minute
	// rounds is the number of attempts to publish a version when other publishers interfere.
	rounds = 5
)

// server publishes to a store, with the same steps for all servers.
type server struct {
	store store.Store
	// texts means that a version has a text on the server, not only a page.
	texts bool
	opts  Options
}

// prepare checks releases before the first request to the server, and returns them by their versions, with warnings for
// users.
func (s *server) prepare(ctx context.Context, releases []*release.Release) ([]*store.Version, []string, error) {
	releases, warnings, err := s.opts.checkSources(releases)
	if err == nil {
		releases, err = candidates(releases)
	}
	if err != nil {
		return nil, nil, err
	}
	all, err := store.Versions(releases)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(s.opts.checkNotes(), s.store.Fits(all)); err != nil {
		return nil, nil, err
	}
	for _, v := range all {
		if err := v.Generate(ctx, s.opts.SignKey); err != nil {
			return nil, nil, err
		}
	}
	return all, warnings, nil
}

func (s *server) Plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	all, warnings, err := s.prepare(ctx, releases)
	if err != nil {
		return nil, err
	}
	return s.plan(ctx, all, warnings)
}

func (s *server) Publish(ctx context.Context, releases []*release.Release) (*Result, error) {
	all, warnings, err := s.prepare(ctx, releases)
	if err != nil {
		return nil, err
	}
	use := s.store.Use(all)
	if len(use.Entries) > 0 {
		if err := clientReady(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, publishTime, fmt.Errorf("publishing took more than %s", publishTime))
	defer cancel()
	plan, err := s.plan(ctx, all, warnings)
	if err == nil {
		err = plan.Err()
	}
	if err != nil {
		return nil, err
	}
	result := &Result{Plan: *plan, Entry: entryText(use.Entries), Usage: use.Text}
	result.Warnings = append(result.Warnings, use.Warnings...)
	if len(use.Entries) > 0 {
		result.Commands = clusterctlCommands("", store.Releases(all))
	}
	result.Releases, result.Pages = nil, nil
	files := make([][]release.File, len(all))
	for i, v := range all {
		if files[i], err = s.publishVersion(ctx, v, result); err != nil {
			return nil, err
		}
	}
	for i, v := range all {
		if s.opts.Draft {
			break // only the repository's collaborators can read it
		}
		if err := s.readBack(ctx, v, files[i]); err != nil {
			return nil, fmt.Errorf("published, but: %w", err)
		}
	}
	for _, v := range all {
		pages, err := s.page(ctx, v, sync.OnceValue(func() string { return s.text(ctx, v, &result.Warnings) }))
		if err != nil {
			return nil, err
		}
		result.Pages = append(result.Pages, pages...)
	}
	return result, nil
}

// publishVersion makes a version public, and adds the action to the result. It returns the files that must exist
// afterwards.
func (s *server) publishVersion(ctx context.Context, v *store.Version, result *Result) ([]release.File, error) {
	var last error
	for round := range rounds {
		if round > 0 {
			s.opts.tell(fmt.Sprintf("%v; looking again", last))
			if err := s.opts.Network.Wait(ctx, transport.Pause(round)); err != nil {
				return nil, err
			}
		}
		there, plans, err := s.look(ctx, v)
		if err != nil {
			return nil, err
		}
		files := v.Files // the generated files may cover more providers
		var staged store.Staged
		var warnings []string
		if last = nil; plans[0].Action != store.Unchanged {
			files = v.All
			staged, last = s.put(ctx, v, there, &warnings)
		}
		if errors.Is(last, store.ErrTaken) {
			continue
		}
		if last != nil {
			return nil, last
		}
		seen, err := s.store.Settle(ctx, v, staged)
		if errors.Is(err, store.ErrTaken) {
			err = s.lost(ctx, v)
		}
		result.Releases = append(result.Releases, plans...)
		result.Warnings = slices.Concat(result.Warnings, warnings, seen)
		return files, err
	}
	return nil, fmt.Errorf("publishing %s: %w; given up after %d rounds: run this again when nobody else publishes it", v.Number, last, rounds)
}

// look returns the snapshot of a version, and the actions for it; an error if it is refused.
func (s *server) look(ctx context.Context, v *store.Version) (*store.Snapshot, []ReleasePlan, error) {
	there, err := s.store.Look(ctx, v.Number)
	if err != nil {
		return nil, nil, err
	}
	plans, err := s.compare(ctx, v, there)
	if err == nil {
		err = (&Plan{Releases: plans}).Err()
	}
	return there, plans, err
}

// lost returns the error of a publisher whose version another one overwrote: nil if the bytes are the same.
func (s *server) lost(ctx context.Context, v *store.Version) error {
	strict := *s
	strict.opts.Replace = false // the existing version must be equal
	_, _, err := strict.look(ctx, v)
	return err
}

// put stages a version and commits it.
func (s *server) put(ctx context.Context, v *store.Version, there *store.Snapshot, warnings *[]string) (store.Staged, error) {
	v.Text = store.Text{Title: v.Number, Body: s.opts.Notes}
	if v.Text.Body == "" {
		v.Text = store.Text{Title: cmp.Or(there.Text.Title, v.Number), Body: there.Text.Body}
	}
	if v.Text.Body == "" && s.texts {
		v.Text.Body = s.text(ctx, v, warnings)
	}
	staged, err := s.store.Stage(ctx, v, there)
	if err == nil {
		err = s.store.Commit(ctx, staged)
	}
	return staged, err
}

// text returns the text of a version: the user's or, without it, the changes since the previous release. A failure is a
// warning, and the text is empty then. A missing previous release is only reported as progress.
func (s *server) text(ctx context.Context, v *store.Version, warnings *[]string) string {
	if s.opts.Notes != "" || s.opts.NotesFrom == NoNotes {
		return s.opts.Notes
	}
	s.opts.tell("making the notes of " + v.Number)
	text, err := s.opts.notes(ctx, v, s.history())
	switch {
	case errors.Is(err, errNoneBefore) && s.opts.NotesFrom == "":
		s.opts.tell(fmt.Sprintf("%s has no notes: %v", v.Number, err))
	case err != nil:
		*warnings = append(*warnings, fmt.Sprintf("%s has no notes, because it could not be compared with the previous release: %v", v.Number, err))
	}
	return text
}

// page creates the page of a version if the store has pages. Without a text it only plans.
func (s *server) page(ctx context.Context, v *store.Version, text func() string) ([]store.Page, error) {
	pager, ok := s.store.(store.Pager)
	if !ok {
		return nil, nil
	}
	page, err := pager.Page(ctx, v, text)
	if page == nil || err != nil {
		return nil, err
	}
	return []store.Page{*page}, nil
}

// readBack compares the public files with the published ones: through clusterctl's own client if that reads from here,
// or directly from the server.
func (s *server) readBack(ctx context.Context, v *store.Version, files []release.File) error {
	read, _, err := s.store.Reader(ctx, v.Number)
	atOnce := clusterctlReadsAtOnce
	if err == nil && read == nil {
		atOnce = transport.AtOnce
		var there *store.Snapshot
		if there, err = s.store.Look(ctx, v.Number); err == nil {
			read = func(ctx context.Context, name string) ([]byte, error) { return s.store.Read(ctx, there, name) }
		}
	}
	if err != nil {
		return &ReadBackError{Release: v.Releases[0], Err: err}
	}
	return readBackFiles(ctx, v, files, s.opts, atOnce, read)
}

func (s *server) Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error) {
	return s.opts.checkedAgainst(ctx, releases, s.history())
}

// history returns the public releases of the store.
func (s *server) history() history {
	return history{
		place:    s.store.URL(),
		versions: func(ctx context.Context, _ release.Provider) ([]string, error) { return s.store.Versions(ctx) },
		fetch:    s.Fetch,
	}
}

// readBackTries is the number of attempts to read a file that was just published: the servers for downloads may lag
// behind those for uploads.
const readBackTries = 6

// clusterctlReadsAtOnce is the number of files that clusterctl's client reads concurrently: it keeps them in maps
// without a lock.
const clusterctlReadsAtOnce = 1

// readBackFiles compares files of a version with the results of read, at most atOnce concurrently.
func readBackFiles(ctx context.Context, v *store.Version, files []release.File, opts Options, atOnce int, read func(ctx context.Context, name string) ([]byte, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, f := range files {
		group.Go(func() error {
			opts.tell(fmt.Sprintf("reading %s back (%d of %d)", f.Name, i+1, len(files)))
			data, err := read(ctx, f.Name)
			for try := 1; try < readBackTries && err != nil && ctx.Err() == nil; try++ {
				if err = opts.Network.Wait(ctx, transport.Pause(try)); err == nil {
					data, err = read(ctx, f.Name)
				}
			}
			return compared(v.Owner(f.Name), f, data, err)
		})
	}
	return group.Wait()
}

// compared returns nil if a file was read with its bytes.
func compared(r *release.Release, file release.File, data []byte, err error) error {
	if err == nil && bytes.Equal(data, file.Data) {
		return nil
	}
	return &ReadBackError{Release: r, File: file.Name, Err: err}
}

// clientReady reports whether clusterctl's client can work for this user, before anything is published: it always
// creates a folder for configurations first.
func clientReady() error {
	if _, err := xdg.ConfigFile(config.ConfigFolderXDG); err != nil {
		return fmt.Errorf("clusterctl's client has no folder for its configuration: %w: set HOME or XDG_CONFIG_HOME to a folder that can be written to", err)
	}
	return nil
}

// entryText returns entries of clusterctl's configuration as text for its clusterctl.yaml.
func entryText(entries []store.Entry) string {
	if len(entries) == 0 {
		return ""
	}
	text, _ := yaml.Marshal(map[string]any{"providers": entries}) // strings can be written as YAML
	return string(text)
}
