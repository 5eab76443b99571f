package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// httpsTarget is a local repository that a web server shows. clusterctl does not support such a URL: the releases are
// read for checks, and for the user's own local repository.
//
// Source: cmd/clusterctl/client/repository/client.go of Cluster API, repositoryFactory: of the https URLs those of
// GitHub and GitLab only.
var httpsTarget = target{
	Kind: store.Kind{
		Form:    "https://HOST/.../LABEL/VERSION/COMPONENTS-FILE, for a local repository on a web server",
		Matches: func(text string) bool { return strings.HasPrefix(text, "https://") },
	},
	read: readHTTPS,
}

// readHTTPS returns the release in the URL of a components file. A web server has no list of files: they are those in
// its checksums or, without checksums, the ones that clusterctl always requests.
func readHTTPS(ctx context.Context, text string, opts Options) ([]readRelease, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the URL of a release: %w", err)
	}
	if u.User != nil {
		return nil, errors.New("the URL of a release has a user or password in it: take it out; only what needs no token is read from a web server")
	}
	if opts.TokenFile != "" {
		return nil, fmt.Errorf("Options.TokenFile is for GitHub, GitLab and registries, and %s is not one of them: only what needs no token is read from a web server", u.Host)
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) < 3 || u.RawQuery != "" || u.Fragment != "" {
		return nil, notHTTPS(text)
	}
	file, version := parts[len(parts)-1], parts[len(parts)-2]
	provider, err := release.ParseLabel(parts[len(parts)-3])
	if err != nil || file != provider.ComponentsFile() {
		return nil, errors.Join(notHTTPS(text), err)
	}
	if version == store.Latest {
		return nil, fmt.Errorf("%q: a web server does not say which version is the latest: name one", text)
	}
	if _, err := release.ParseVersion(version); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	folder := *u
	folder.Path, folder.RawPath = path.Dir(u.Path), ""
	client := transport.New(transport.Options{Network: opts.Network, Report: opts.Report})
	read := func(ctx context.Context, _ *store.Snapshot, name string) ([]byte, error) {
		return client.Do(ctx, "downloading "+name, http.MethodGet, folder.JoinPath(name).String(), nil, nil)
	}
	there, err := store.Unlisted(ctx, version, read)
	if err != nil {
		return nil, err
	}
	if _, ok := there.Files[file]; !ok {
		return nil, fmt.Errorf("%w: there is no %s", release.ErrNoRelease, text)
	}
	f, err := fetchFiles(ctx, there, file, &provider, "", read)
	f.note = fmt.Sprintf("clusterctl reads nothing from %s, as it is neither GitHub nor GitLab: its users need the release in a local repository (clusterctl release fetch, then publish)", u.Host)
	return []readRelease{f}, err
}

func notHTTPS(text string) error {
	return fmt.Errorf("%q isn't a release: from a web server the components of a local repository are read, https://HOST/.../LABEL/VERSION/COMPONENTS-FILE, such as .../infrastructure-demo/v0.1.0/infrastructure-components.yaml (a GitHub Enterprise server is known by GITHUB_SERVER_URL)", text)
}
