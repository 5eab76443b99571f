package gitlab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/xanzy/go-gitlab"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// List also lists the files of hidden packages, which lists omit and which can be downloaded.
func (s *pkg) List(ctx context.Context, version string) ([]store.FlatFile, error) {
	packages, err := s.packages(ctx, version, shown, hidden)
	if err != nil {
		return nil, err
	}
	var files []store.FlatFile
	for _, p := range packages {
		some, err := s.files(ctx, p.ID)
		if err != nil {
			return nil, err
		}
		files = append(files, some...)
	}
	slices.SortFunc(files, func(a, b store.FlatFile) int { return cmp.Compare(a.ID, b.ID) })
	return files, nil
}

func (s *pkg) files(ctx context.Context, id int) ([]store.FlatFile, error) {
	var all []store.FlatFile
	for page := 1; page != 0; {
		some, resp, err := s.client.Packages.ListPackageFiles(s.project, id, &gitlab.ListPackageFilesOptions{Page: page, PerPage: pageSize}, gitlab.WithContext(ctx))
		if err != nil {
			return nil, s.failure("listing the files of a package", resp, err)
		}
		for _, one := range some {
			all = append(all, store.FlatFile{Name: one.FileName, File: store.File{Size: int64(one.Size), SHA256: one.FileSHA256}, ID: int64(one.ID), Package: int64(id)})
		}
		page = resp.NextPage
	}
	return all, nil
}

// Send uploads a file. Files of one version are sent one after the other.
// Source: GitLab docs, "Publish a package": "You must call this endpoint serially".
func (s *pkg) Send(ctx context.Context, version string, file release.File) error {
	_, resp, err := s.client.GenericPackages.PublishPackageFile(s.project, s.name, version, file.Name, bytes.NewReader(file.Data), nil, gitlab.WithContext(ctx))
	var response *gitlab.ErrorResponse
	err = s.failure("uploading "+file.Name, resp, err)
	// Source: lib/api/generic_packages.rb of GitLab; servers before 15 answered 403.
	if errors.As(err, &response) && transport.HasStatus(err, http.StatusBadRequest, http.StatusForbidden) &&
		strings.Contains(strings.ToLower(response.Message), "duplicate package") {
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	}
	return err
}

func (s *pkg) Remove(ctx context.Context, _ string, file store.FlatFile) error {
	resp, err := s.client.Packages.DeletePackageFile(s.project, int(file.Package), int(file.ID), gitlab.WithContext(ctx))
	return transport.Unless(s.failure("removing a file "+file.Name, resp, err), http.StatusNotFound)
}

func (s *pkg) RemoveVersion(ctx context.Context, version string) error {
	packages, err := s.packages(ctx, version, shown, hidden)
	if err != nil {
		return err
	}
	for _, p := range packages {
		resp, err := s.client.Packages.DeleteProjectPackage(s.project, p.ID, gitlab.WithContext(ctx))
		if err := transport.Unless(s.failure("removing the package of "+version, resp, err), http.StatusNotFound); err != nil {
			return err
		}
	}
	return nil
}

// shown and hidden are the states of packages.
const shown, hidden = "default", "hidden"

// packages returns the packages of a version in these states; of all versions if it is empty.
// Job tokens may list them: gitlab-org/gitlab merge requests 91437 and 116059.
func (s *pkg) packages(ctx context.Context, version string, states ...string) ([]*gitlab.Package, error) {
	var all []*gitlab.Package
	for _, state := range states {
		opts := &gitlab.ListProjectPackagesOptions{
			ListOptions: gitlab.ListOptions{Page: 1, PerPage: pageSize},
			PackageType: gitlab.Ptr("generic"), PackageName: &s.name, Status: &state,
		}
		if version != "" {
			opts.PackageVersion = &version
		}
		for opts.Page != 0 {
			some, resp, err := s.client.Packages.ListProjectPackages(s.project, opts, gitlab.WithContext(ctx))
			if err != nil {
				return nil, s.failure("listing the packages of "+s.URL(), resp, err)
			}
			for _, p := range some {
				// The server matches parts of names, and servers before 16.6 ignore versions.
				if p.Name == s.name && (version == "" || p.Version == version) {
					all = append(all, p)
				}
			}
			opts.Page = resp.NextPage
		}
	}
	return all, nil
}

func (s *pkg) Read(ctx context.Context, there *store.Snapshot, name string) ([]byte, error) {
	data, resp, err := s.client.GenericPackages.DownloadPackageFile(s.project, s.name, there.Version, name, gitlab.WithContext(ctx))
	return data, s.failure("downloading "+name, resp, err)
}
