package release

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoRelease says that a folder holds no release where one was looked for.
var ErrNoRelease = errors.New("no release")

// Read returns the releases below a folder, which is a version folder (<label>/<version>: one
// release), a provider's folder (<label>: all of its versions) or a repository's root (everything
// in it), in the order of their labels and versions' names. Folders that carry no provider label
// are passed over, as clusterctl does. The error is ErrNoRelease where nothing is found.
// Source: clusterctl provider contract, "Creating a local provider repository".
func Read(dir string) ([]*Release, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("reading a release: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("reading a release: %s is a file: name its version folder, <label>/<version>", dir)
	}
	if _, err := ParseVersion(filepath.Base(abs)); err == nil {
		r, err := ReadVersion(abs)
		if err != nil {
			return nil, err
		}
		return []*Release{r}, nil
	}
	if _, err := ParseLabel(filepath.Base(abs)); err == nil {
		releases, err := readProvider(abs)
		if err != nil || len(releases) > 0 {
			return releases, err
		}
	}
	return readRepository(dir, abs)
}

// ReadVersion returns the release in a version folder, <label>/<version>.
func ReadVersion(dir string) (*Release, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", dir, err)
	}
	provider, err := ParseLabel(filepath.Base(filepath.Dir(abs)))
	if err != nil {
		return nil, fmt.Errorf("reading the release in %s: the folder above the version: %w", dir, err)
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return nil, fmt.Errorf("reading the release in %s: %w", dir, err)
	}
	files := make([]File, 0, len(entries))
	for _, entry := range entries {
		path := filepath.Join(abs, entry.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("reading the release in %s: %w", dir, err)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("reading the release in %s: %s is no plain file: a provider repository has no folders below the version", dir, entry.Name())
		}
		if role := (&Release{Provider: provider}).Role(entry.Name()); role != RoleOther && info.Size() > MaxFileSize {
			return nil, fmt.Errorf("reading the release in %s: %s has %d bytes, and a release's %s of more than %d is not read", dir, entry.Name(), info.Size(), role, MaxFileSize)
		}
		data, err := os.ReadFile(path) //nolint:gosec // the user names the folder to read
		if err != nil {
			return nil, fmt.Errorf("reading the release in %s: %w", dir, err)
		}
		files = append(files, File{Name: entry.Name(), Data: data})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w in %s: the folder is empty", ErrNoRelease, dir)
	}
	return New(provider, filepath.Base(abs), files)
}

// readProvider returns every version in a provider's folder.
func readProvider(abs string) ([]*Release, error) {
	entries, err := os.ReadDir(abs)
	if err != nil {
		return nil, fmt.Errorf("reading the releases in %s: %w", abs, err)
	}
	var releases []*Release
	for _, entry := range entries {
		if _, err := ParseVersion(entry.Name()); err != nil || !entry.IsDir() {
			continue
		}
		r, err := ReadVersion(filepath.Join(abs, entry.Name()))
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
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if _, err := ParseLabel(entry.Name()); err != nil {
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
