package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/version"
)

// ErrNoRelease means that a folder contains no release.
var ErrNoRelease = errors.New("no release")

// Read returns the releases below a folder, which is a version folder (<label>/<version>: one release), a provider's
// folder (<label>: all of its versions) or a repository's root (all releases), in the order of their labels and
// versions' names. Like clusterctl, it skips folders without a provider label or a semantic version as their name. It
// includes releases whose provider name or version clusterctl refuses, which the checks report. The error is
// ErrNoRelease if there is no release.
//
// Source: clusterctl provider contract, "Creating a local provider repository".
func Read(dir string) ([]*Release, error) {
	_, releases, err := ReadRoot(dir)
	return releases, err
}

// ReadRoot is Read, and also returns the absolute path of the repository's root, which contains the providers' folders.
func ReadRoot(dir string) (root string, releases []*Release, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, fmt.Errorf("finding %s: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("reading a release: %w: name the folder of a version, <label>/<version>, a folder above it, or the URL of a provider; build and fetch write such folders", err)
	}
	if err != nil {
		return "", nil, fmt.Errorf("reading a release: %w", err)
	}
	if !info.IsDir() {
		return "", nil, fmt.Errorf("reading a release: %s is a file: name its version folder, <label>/<version>", dir)
	}
	if isVersion(filepath.Base(abs)) {
		r, err := readVersion(abs)
		if err != nil {
			return "", nil, err
		}
		return filepath.Dir(filepath.Dir(abs)), []*Release{r}, nil
	}
	if isLabel(filepath.Base(abs)) {
		releases, err := readProvider(abs)
		if err != nil || len(releases) > 0 {
			return filepath.Dir(abs), releases, err
		}
	}
	releases, err = readRepository(dir, abs)
	return abs, releases, err
}

// isVersion reports whether the name of a folder is a semantic version, with or without the leading v.
func isVersion(name string) bool {
	_, err := version.ParseSemantic(name)
	return err == nil
}

// isLabel reports whether the name of a folder is the label of a provider, whose name may be wrong.
func isLabel(name string) bool {
	_, err := ParseLabel(name)
	return !errors.Is(err, ErrNoProviderLabel)
}

// ReadVersion returns the release in a version folder, <label>/<version>. The error may be that of New.
func ReadVersion(dir string) (*Release, error) {
	r, err := readVersion(dir)
	if err != nil {
		return nil, err
	}
	checked, err := New(r.Provider, r.Version, r.Files)
	if err != nil {
		return nil, fmt.Errorf("reading the release in %s: %w", dir, err)
	}
	checked.Source = r.Source
	return checked, nil
}

// readVersion returns the release in a version folder, with any version and provider name.
func readVersion(dir string) (*Release, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", dir, err)
	}
	provider, err := ParseLabel(filepath.Base(filepath.Dir(abs)))
	if errors.Is(err, ErrNoProviderLabel) {
		return nil, fmt.Errorf("reading the release in %s: the folder above the version: %w", dir, err)
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return nil, fmt.Errorf("reading the release in %s: %w", dir, err)
	}
	var source *Source
	files := make([]File, 0, len(entries))
	for _, entry := range entries {
		path := filepath.Join(abs, entry.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("reading the release in %s: %w", dir, err)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("reading the release in %s: %s isn't a plain file: a provider repository has no folders below the version", dir, entry.Name())
		}
		if role := (&Release{Provider: provider}).Role(entry.Name()); role != RoleOther && info.Size() > MaxFileSize {
			return nil, fmt.Errorf("reading the release in %s: %s has %d bytes, but a release's %s may have at most %d", dir, entry.Name(), info.Size(), role, MaxFileSize)
		}
		data, err := os.ReadFile(path) //nolint:gosec // the user names the folder to read
		if err != nil {
			return nil, fmt.Errorf("reading the release in %s: %w", dir, err)
		}
		if entry.Name() == SourceFile {
			if source, err = parseSource(data); err != nil {
				return nil, fmt.Errorf("reading the release in %s: %w", dir, err)
			}
			continue
		}
		files = append(files, File{Name: entry.Name(), Data: data})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w in %s: the folder is empty", ErrNoRelease, dir)
	}
	return &Release{Provider: provider, Version: filepath.Base(abs), Files: files, Source: source}, nil
}

// readProvider returns every version in a provider's folder.
func readProvider(abs string) ([]*Release, error) {
	entries, err := os.ReadDir(abs)
	if err != nil {
		return nil, fmt.Errorf("reading the releases in %s: %w", abs, err)
	}
	var releases []*Release
	for _, entry := range entries {
		if !entry.IsDir() || !isVersion(entry.Name()) {
			continue
		}
		r, err := readVersion(filepath.Join(abs, entry.Name()))
		if err != nil {
			return nil, err
		}
		releases = append(releases, r)
	}
	return releases, nil
}

// readRepository returns every release in a repository's root.
func readRepository(dir, abs string) ([]*Release, error) {
	entries, err := os.ReadDir(abs)
	if err != nil {
		return nil, fmt.Errorf("reading the repository %s: %w", dir, err)
	}
	var releases []*Release
	for _, entry := range entries {
		if !entry.IsDir() || !isLabel(entry.Name()) {
			continue
		}
		r, err := readProvider(filepath.Join(abs, entry.Name()))
		if err != nil {
			return nil, err
		}
		releases = append(releases, r...)
	}
	if len(releases) == 0 {
		return nil, fmt.Errorf("%w in %s: expected folders <provider label>/<version> such as infrastructure-libvirt/v0.1.0", ErrNoRelease, dir)
	}
	return releases, nil
}
