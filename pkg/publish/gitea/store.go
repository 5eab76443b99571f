// Package gitea publishes to generic packages of Gitea and Forgejo.
//
// A package has no drafts: store.Claims makes a version complete in one step. The server refuses a second file with the
// same name, so only one publisher's claim can exist.
// Source: Gitea docs, "Generic Package Registry"; the API's "package" operations.
package gitea

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Kind is a generic package of an owner on a Gitea or Forgejo.
var Kind = store.Kind{
	Form:     "https://HOST/api/packages/OWNER/generic/NAME, for a generic package on Gitea or Forgejo",
	ReadForm: "/VERSION/COMPONENTS-FILE",
	Matches:  func(text string) bool { return strings.HasPrefix(text, "https://") && form.MatchString(text) },
	Open:     open,
}

// form matches the URL of a package, which may be below a path of the server, with a version and a file.
var form = regexp.MustCompile(`^(https://[^/?#]+(?:/[^?#]*)?)/api/packages/([A-Za-z0-9._-]+)/generic/([A-Za-z0-9.+_-]+)(?:/([^/?#]+))?(?:/([^/?#]+))?/?$`)

// pageSize is the number of entries on a page of a list; servers may return fewer.
const pageSize = 50

type pkg struct {
	*store.Claims

	// site is the server's own URL.
	site, owner, name string
	credential        transport.Credential
	opts              store.Options
}

// open returns the package in a URL, and the version and file after it.
func open(text string, opts store.Options) (store.Store, store.At, error) {
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return nil, store.At{}, fmt.Errorf("%q isn't a package on Gitea: write https://HOST/api/packages/OWNER/generic/NAME", text)
	}
	u, err := store.ParseURL(parts[1], "a package on Gitea", "GITEA_TOKEN")
	if err != nil {
		return nil, store.At{}, err
	}
	s := &pkg{site: parts[1], owner: parts[2], name: parts[3], opts: opts}
	s.credential = transport.Credential{Header: "Authorization", Prefix: "token ", Hosts: []string{u.Host}}
	if s.credential.Secret, err = store.ReadToken(opts.TokenFile, "GITEA_TOKEN", "FORGEJO_TOKEN"); err != nil {
		return nil, store.At{}, err
	}
	s.Claims = store.NewClaims(s, transport.New(transport.Options{Credential: s.credential, Network: opts.Network, Report: opts.Report}), opts.Tell)
	return s, store.At{Version: parts[4], File: parts[5]}, nil
}

func (s *pkg) URL() string { return s.site + "/api/packages/" + s.owner + "/generic/" + s.name }

func (s *pkg) Place(version string) string { return s.URL() + "/" + version }

func (s *pkg) Fits(all []*store.Version) error {
	problems := store.CheckNames(all, "Gitea", fileName)
	if s.credential.Secret == "" {
		problems = append(problems, fmt.Errorf("there is no token to publish to %s with: set GITEA_TOKEN, or give Options.TokenFile", s.site))
	}
	return errors.Join(problems...)
}

// fileName matches the names of files that every version of the server accepts.
var fileName = regexp.MustCompile(`^[A-Za-z0-9.+_-]+$`)

const note = "clusterctl reads nothing from Gitea: its users fetch releases (clusterctl release fetch) into a local repository"

func (s *pkg) Use([]*store.Version) store.Use { return store.Use{Text: note + "\n"} }

func (s *pkg) Reader(context.Context, string) (func(context.Context, string) ([]byte, error), string, error) {
	return nil, note, nil
}

// do sends a request to the server and returns the answer's bytes.
func (s *pkg) do(ctx context.Context, doing, method, at string, body []byte) ([]byte, error) {
	return s.Client.Do(ctx, doing, method, at, body, map[int]string{
		http.StatusUnauthorized: "the token is missing or not accepted: it is read from Options.TokenFile, GITEA_TOKEN or FORGEJO_TOKEN; has it expired?",
		http.StatusForbidden:    "the token has no right to do this, or a quota is used up: it needs the scope write:package",
		http.StatusNotFound:     "there is no such owner, or the token may not see it",
	})
}

func (s *pkg) List(ctx context.Context, version string) ([]store.FlatFile, error) {
	at := s.site + "/api/v1/packages/" + s.owner + "/generic/" + s.name + "/" + url.PathEscape(version) + "/files"
	data, err := s.do(ctx, "listing the files of "+s.Place(version), http.MethodGet, at, nil)
	if err != nil {
		return nil, transport.Unless(err, http.StatusNotFound)
	}
	var listed []struct {
		Name   string `json:"name"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}
	if err := json.Unmarshal(data, &listed); err != nil {
		return nil, fmt.Errorf("listing the files of %s: %w", s.Place(version), err)
	}
	files := make([]store.FlatFile, 0, len(listed))
	for _, f := range listed {
		files = append(files, store.FlatFile{Name: f.Name, File: store.File{Size: f.Size, SHA256: f.SHA256}})
	}
	return files, nil
}

func (s *pkg) Send(ctx context.Context, version string, f release.File) error {
	_, err := s.do(ctx, "uploading "+f.Name, http.MethodPut, s.fileURL(version, f.Name), f.Data)
	if transport.HasStatus(err, http.StatusConflict) {
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	}
	return err
}

func (s *pkg) fileURL(version, name string) string {
	return s.URL() + "/" + url.PathEscape(version) + "/" + url.PathEscape(name)
}

func (s *pkg) Remove(ctx context.Context, version string, f store.FlatFile) error {
	_, err := s.do(ctx, "removing a file "+f.Name, http.MethodDelete, s.fileURL(version, f.Name), nil)
	return transport.Unless(err, http.StatusNotFound)
}

func (s *pkg) RemoveVersion(ctx context.Context, version string) error {
	_, err := s.do(ctx, "removing "+s.Place(version), http.MethodDelete, s.URL()+"/"+url.PathEscape(version), nil)
	return transport.Unless(err, http.StatusNotFound)
}

func (s *pkg) Read(ctx context.Context, there *store.Snapshot, name string) ([]byte, error) {
	return s.do(ctx, "downloading "+name, http.MethodGet, s.fileURL(there.Version, name), nil)
}

func (s *pkg) Versions(ctx context.Context) ([]string, error) {
	var versions []string
	for page := 1; ; page++ {
		at := fmt.Sprintf("%s/api/v1/packages/%s?type=generic&q=%s&page=%d&limit=%d", s.site, s.owner, url.QueryEscape(s.name), page, pageSize)
		data, err := s.do(ctx, "listing the packages of "+s.owner, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		var listed []struct{ Name, Version string }
		if err := json.Unmarshal(data, &listed); err != nil {
			return nil, fmt.Errorf("listing the packages of %s: %w", s.owner, err)
		}
		if len(listed) == 0 {
			return versions, nil
		}
		for _, p := range listed {
			if _, err := release.ParseVersion(p.Version); err == nil && strings.EqualFold(p.Name, s.name) { // the server searches for names
				versions = append(versions, p.Version)
			}
		}
	}
}
