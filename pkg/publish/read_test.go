package publish

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

func TestRead(t *testing.T) {
	root := filepath.Join(t.TempDir(), "with space")
	publish(t, root, Options{}, someRelease(libvirt, "v0.1.0", ""), someRelease(libvirt, "v0.2.0", ""))
	label := filepath.Join(root, "infrastructure-libvirt")
	url := "file://" + strings.ReplaceAll(label, " ", "%20")
	for _, test := range []struct {
		location string
		want     string
	}{
		{root, "v0.1.0 v0.2.0"},
		{label, "v0.1.0 v0.2.0"},
		{label + "/v0.1.0", "v0.1.0"},
		{url + "/v0.1.0", "v0.1.0"},
		{url + "/v0.1.0/infrastructure-components.yaml", "v0.1.0"},
		{label + "/v0.1.0/infrastructure-components.yaml", "v0.1.0"},
		{url + "/latest/infrastructure-components.yaml", "v0.2.0"},
		{label + "/latest/infrastructure-components.yaml", "v0.2.0"},
	} {
		t.Run(test.location, func(t *testing.T) {
			releases, err := Read(t.Context(), test.location, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var versions []string
			for _, r := range releases {
				versions = append(versions, r.Version)
			}
			if got := strings.Join(versions, " "); got != test.want {
				t.Errorf("read %s, want %s", got, test.want)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	root := t.TempDir()
	publish(t, root, Options{}, someRelease(libvirt, "v0.1.0", ""))
	label := filepath.Join(root, "infrastructure-libvirt")
	for _, test := range []struct {
		location string
		is       error
		want     string
	}{
		{label + "/v0.3.0/infrastructure-components.yaml", release.ErrNoRelease, "it has v0.1.0"},
		{label + "/v0.1.0/other.yaml", fs.ErrNotExist, "other.yaml"},
		{root + "/bootstrap-x/latest/bootstrap-components.yaml", release.ErrNoRelease, "no version"},
		{root + "/missing", fs.ErrNotExist, "missing"},
		{label + "/v0.1.0/metadata.yaml/x", nil, "not a directory"},
		{"file:relative", nil, "file:///PATH"},
		{"file://host/path", nil, "file:///PATH"},
		{"file:///a?b", nil, "%3F"},
		{"file:///%zz", nil, "escape"},
	} {
		t.Run(test.location, func(t *testing.T) {
			_, err := Read(t.Context(), test.location, Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %q (%v)", err, test.want, test.is)
			}
		})
	}
}

func TestReadBackErrorOfBrokenNeighbour(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "infrastructure-libvirt", "v9.0.0", "infrastructure-components.yaml"), "")
	r := someRelease(libvirt, "v0.1.0", "")
	_, err := open(t, root, Options{}).Publish(t.Context(), []*release.Release{r})
	var readBack *ReadBackError
	if !errors.As(err, &readBack) || !strings.Contains(err.Error(), "v9.0.0") {
		t.Errorf("got %v, want an error that names v9.0.0", err)
	}
	mustRead(t, root, r)
}

// TestReadBackErrorOfOtherBytes changes the release between its publication and the check.
func TestReadBackErrorOfOtherBytes(t *testing.T) {
	root := t.TempDir()
	r := someRelease(libvirt, "v0.1.0", "")
	meddling := disk{around: func(op operation, do func() error) error {
		if op.name == "remove" && filepath.Base(op.path) == stagingFolder {
			write(t, filepath.Join(root, "infrastructure-libvirt", "v0.1.0", release.MetadataFile), "other")
		}
		return do()
	}}
	_, err := open(t, root, Options{disk: meddling}).Publish(t.Context(), []*release.Release{r})
	var readBack *ReadBackError
	if !errors.As(err, &readBack) || readBack.File != release.MetadataFile || !strings.Contains(err.Error(), "other bytes") {
		t.Errorf("got %v, want a ReadBackError for metadata.yaml", err)
	}
}

func TestFetchErrors(t *testing.T) {
	root := t.TempDir()
	publish(t, root, Options{}, someRelease(libvirt, "v0.1.0", ""))
	for _, test := range []struct {
		provider release.Provider
		version  string
		is       error
		want     string
	}{
		{libvirt, "v0.2.0", release.ErrNoRelease, "it has v0.1.0"},
		{micro, "latest", release.ErrNoRelease, "no version"},
		{micro, "v0.1.0", release.ErrNoRelease, "no version"},
		{release.Provider{Name: "x"}, "", nil, "unknown"},
	} {
		_, err := open(t, root, Options{}).Fetch(t.Context(), test.provider, test.version)
		if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v %s: got %v, want %q", test.provider, test.version, err, test.want)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "infrastructure-libvirt", "v0.1.0", "infrastructure-components.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, root, Options{}).Fetch(t.Context(), libvirt, "v0.1.0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without components: %v", err)
	}
}
