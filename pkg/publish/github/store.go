// Package github publishes to the releases of a repository on GitHub.
//
// A version is built up in a draft, which only the repository's collaborators see, and made public by one request after
// all its files have been compared. GitHub has no locks and no conditional requests. Only one of several publishers can
// succeed in making a tag's release public, and the rest follows from that: each run uses its own draft, so that no run
// publishes the unfinished draft of another. A killed run leaves a draft behind. It may also be the draft of a run that
// is still active, so it is removed only after the tag is published.
//
// If people have created a release with other files, such as binaries, for the version - a draft, or a public release
// without provider files - the files are added to it instead: SHA256SUMS claims it first, and metadata.yaml comes last,
// as on servers without drafts.
package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/google/go-github/v60/github"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Kind is the releases of a repository on GitHub.
// Source: clusterctl provider contract, "Creating a provider repository on GitHub".
var Kind = store.Kind{
	Form:     "https://github.com/OWNER/REPO (with GITHUB_SERVER_URL also a GitHub Enterprise server)",
	ReadForm: readForm,
	Texts:    true,
	Drafts:   true,
	Matches:  matches,
	Open:     open,
}

const readForm = "/releases/VERSION/COMPONENTS-FILE as in clusterctl's configuration (VERSION may be latest), or /releases/tag/VERSION"

type repo struct {
	server      server
	owner, name string
	client      *github.Client
	http        *transport.Client
	token       string
	opts        store.Options
}

// nameForm matches the names of owners and repositories.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// open returns the repository in a URL, and the version and file after it.
func open(text string, opts store.Options) (store.Store, store.At, error) {
	u, err := store.ParseURL(text, "a GitHub repository", "GITHUB_TOKEN")
	if err != nil {
		return nil, store.At{}, err
	}
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(path) < 2 || u.RawQuery != "" || u.Fragment != "" || !nameForm.MatchString(path[0]) || !nameForm.MatchString(path[1]) {
		return nil, store.At{}, fmt.Errorf("%q isn't a GitHub repository: write https://%s/OWNER/REPO", text, u.Host)
	}
	server, err := newServer(u.Host)
	if err != nil {
		return nil, store.At{}, err
	}
	variables := []string{"GITHUB_TOKEN", "GH_TOKEN"}
	if !strings.EqualFold(pipelineServer().Host, u.Host) {
		variables = nil // what is in GITHUB_TOKEN is for the server that the pipeline runs on
	}
	token, err := store.ReadToken(opts.TokenFile, variables...)
	if err != nil {
		return nil, store.At{}, err
	}
	s := &repo{server: server, owner: path[0], name: strings.TrimSuffix(path[1], ".git"), token: token, opts: opts}
	s.http = transport.New(transport.Options{
		Credential: transport.Credential{Header: "Authorization", Prefix: "Bearer ", Secret: token, Hosts: []string{server.api.Host, server.uploads.Host}},
		Network:    opts.Network, Report: opts.Report,
	})
	s.client = github.NewClient(s.http.HTTP)
	s.client.BaseURL, s.client.UploadURL = server.api, server.uploads
	s.client.UserAgent = "clusterctl-release"
	at, err := s.at(text, path[2:])
	return s, at, err
}

// at returns what the rest of a URL's path names: the repository, a provider in clusterctl's form,
// releases/<version>/<components file>, or all providers of a version, releases/tag/<version>.
func (s *repo) at(text string, rest []string) (store.At, error) {
	if len(rest) == 3 && rest[1] == "tag" {
		rest = []string{rest[0], rest[2]}
	}
	switch {
	case len(rest) == 0:
		return store.At{}, nil
	case rest[0] == "releases" && len(rest) == 1:
		return store.At{File: rest[0]}, nil
	case rest[0] == "releases" && len(rest) == 2:
		return store.At{Version: rest[1]}, nil
	case rest[0] == "releases" && len(rest) == 3:
		return store.At{Version: rest[1], File: rest[2]}, nil
	}
	return store.At{}, fmt.Errorf("%q is neither a repository nor a release: write %s, or that with %s", text, s.URL(), readForm)
}

func (s *repo) URL() string { return s.server.web + "/" + s.owner + "/" + s.name }

func (s *repo) Place(version string) string { return s.URL() + "/releases/tag/" + version }

// entryURL returns clusterctl's URL of a file in a version.
func (s *repo) entryURL(version, file string) string {
	return s.URL() + "/releases/" + version + "/" + file
}

// clusterctlReads reports whether clusterctl's client reads from here.
func (s *repo) clusterctlReads() bool {
	return strings.EqualFold(s.server.web, "https://"+clusterctlsHost)
}

// failure adds advice for the user to an error of the API; nil stays nil.
func (s *repo) failure(doing string, resp *github.Response, err error) error {
	var answer *http.Response
	needs := "contents: write"
	if resp != nil {
		answer = resp.Response
		// Source: GitHub docs, "Troubleshooting the REST API", "Insufficient permissions".
		if accepted := resp.Header.Get("X-Accepted-GitHub-Permissions"); accepted != "" {
			needs = accepted
		}
	}
	notFound := "there is no such repository, or the token may not see it: it needs contents: write there"
	if s.token == "" {
		notFound = "there is no such repository, or it is private: set GITHUB_TOKEN, or give Options.TokenFile"
	}
	const moved = "the repository was renamed or moved: publish to where it is now"
	return transport.Answered(doing, answer, err, map[int]string{
		http.StatusUnauthorized:      "the token is not accepted: is it one of this server, and has it expired? It is read from GITHUB_TOKEN, GH_TOKEN or Options.TokenFile",
		http.StatusForbidden:         "the token has no right to do this: it needs " + needs + " (in a workflow: permissions: {contents: write})",
		http.StatusNotFound:          notFound,
		http.StatusMovedPermanently:  moved,
		http.StatusFound:             moved,
		http.StatusTemporaryRedirect: moved,
		http.StatusPermanentRedirect: moved,
	})
}

// maxAssets is the maximum number of assets of a release.
// Source: GitHub docs, "About releases", "Storage and bandwidth quotas".
const maxAssets = 1000

// assetName matches the names that GitHub keeps; in others it replaces characters.
// Source: GitHub docs, "Upload a release asset", the notes.
var assetName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.+-]*$`)

func (s *repo) Fits(all []*store.Version) error {
	var problems []error
	if s.token == "" {
		problems = append(problems, errors.New("there is no token to publish to GitHub with: set GITHUB_TOKEN (in a workflow: env: {GITHUB_TOKEN: ${{ github.token }}}), or give Options.TokenFile"))
	}
	for _, v := range all {
		for _, f := range v.Files {
			if !assetName.MatchString(f.Name) || strings.HasSuffix(f.Name, ".") {
				problems = append(problems, fmt.Errorf("%s: GitHub changes the name %q: use letters, digits, '.', '-', '_' and '+' only, with no '.' first or last", v.Owner(f.Name), f.Name))
			}
			if len(f.Data) == 0 {
				problems = append(problems, fmt.Errorf("%s: %s is empty, and GitHub takes no empty files: take it out of the release", v.Owner(f.Name), f.Name))
			}
		}
		if len(v.Files) >= maxAssets {
			problems = append(problems, fmt.Errorf("%s has %d files, and a release on GitHub has at most %d", v.Number, len(v.Files), maxAssets))
		}
	}
	return errors.Join(problems...)
}

func (s *repo) Survey(ctx context.Context, all []*store.Version) ([]string, error) {
	repository, resp, err := s.client.Repositories.Get(ctx, s.owner, s.name)
	if err != nil {
		return nil, s.failure("looking at "+s.URL(), resp, err)
	}
	if full := repository.GetFullName(); full != "" && !strings.EqualFold(full, s.owner+"/"+s.name) {
		return nil, fmt.Errorf("%s is now called %s: publish to %s/%s", s.URL(), full, s.server.web, full)
	}
	if repository.GetArchived() {
		return nil, fmt.Errorf("%s is archived, and takes no releases: publish to another repository", s.URL())
	}
	// The token of a workflow's job has no user, so all of these are false for it.
	if may := repository.GetPermissions(); may["pull"] && !may["push"] {
		return nil, fmt.Errorf("the token may read %s, but not write to it: it needs contents: write", s.URL())
	}
	return s.incompleteTags(ctx, all)
}

// commitToTag returns the commit of a version's tag, "" if the tag does not exist, and the commit to tag, "" if it does.
func (s *repo) commitToTag(ctx context.Context, v *store.Version) (tagged, commit string, err error) {
	if tagged, err = s.tagCommit(ctx, v.Number); err != nil {
		return "", "", err
	}
	pipeline := ""
	if strings.EqualFold(os.Getenv("GITHUB_REPOSITORY"), s.owner+"/"+s.name) {
		pipeline = os.Getenv("GITHUB_SHA")
	}
	commit, err = s.opts.CommitToTag(v, s.URL(), tagged, pipeline)
	return tagged, commit, err
}

// tagCommit returns the commit of a version's tag, or "" if the tag does not exist.
func (s *repo) tagCommit(ctx context.Context, version string) (string, error) {
	doing := "looking for the tag " + version
	ref, resp, err := s.client.Git.GetRef(ctx, s.owner, s.name, "tags/"+version)
	if err != nil {
		return "", transport.Unless(s.failure(doing, resp, err), http.StatusNotFound)
	}
	object := ref.GetObject()
	if object.GetType() != "tag" {
		return object.GetSHA(), nil
	}
	tag, resp, err := s.client.Git.GetTag(ctx, s.owner, s.name, object.GetSHA())
	if err != nil {
		return "", s.failure(doing, resp, err)
	}
	return tag.GetObject().GetSHA(), nil
}

func (s *repo) Aim(ctx context.Context, v *store.Version, there *store.Snapshot) ([]string, error) {
	tagged, commit, err := s.commitToTag(ctx, v)
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("the tag %s is of the commit %s", v.Number, tagged)}
	if commit != "" {
		lines[0] = fmt.Sprintf("the commit %s is tagged %s", commit, v.Number)
	}
	is := stateOf(there)
	highest := highestStable(is.listed, v.Number)
	switch {
	case s.opts.Draft:
		lines = append(lines, "it stays a draft, for a person to make public")
	case !store.Stable(v.Number):
		lines = append(lines, "it becomes a pre-release")
	case highest == v.Number:
		lines = append(lines, "it becomes the latest release")
	default:
		lines = append(lines, "the latest release is still "+highest)
	}
	host, err := is.host(v.Number)
	switch {
	case err != nil:
		return nil, err
	case host != nil:
		lines = append(lines, fmt.Sprintf("the files are added to %s, which has %d", host.GetHTMLURL(), len(is.assets)))
	case len(is.prepared) > 0:
		lines = append(lines, "it takes the title and text of the draft "+is.prepared[0].GetHTMLURL())
	}
	return lines, nil
}

func (s *repo) Use(all []*store.Version) store.Use {
	if !s.clusterctlReads() {
		return store.Use{Warnings: []string{fmt.Sprintf("clusterctl reads releases from %s only: from %s its users fetch them (clusterctl release fetch) into a local repository", clusterctlsHost, s.server.web)}}
	}
	return store.Use{Entries: store.Entries(store.Releases(all), func(r *release.Release) string {
		return s.entryURL(store.Latest, r.Provider.ComponentsFile())
	})}
}

// clusterctlClient returns clusterctl's own client for the repository.
func (s *repo) clusterctlClient(ctx context.Context, version, file string) (repository.Repository, error) {
	return store.ClusterctlClient(ctx, func(ctx context.Context, p config.Provider, v config.VariablesClient) (repository.Repository, error) {
		return repository.NewGitHubRepository(ctx, p, v)
	}, s.entryURL(version, file), config.GitHubTokenVariable, transport.Credential{
		Header: "Authorization", Prefix: "Bearer ", Secret: s.token, Hosts: []string{s.server.api.Host},
	})
}

func (s *repo) Reader(ctx context.Context, version string) (func(context.Context, string) ([]byte, error), string, error) {
	if !s.clusterctlReads() && s.opts.Network.ReadFile == nil {
		return nil, fmt.Sprintf("clusterctl reads releases from %s only, and not from %s", clusterctlsHost, s.server.web), nil
	}
	read, err := s.opts.Reader(version, s.entryURL, func() (repository.Repository, error) { return s.clusterctlClient(ctx, version, release.MetadataFile) })
	if err != nil {
		return nil, "", fmt.Errorf("making clusterctl's client for %s: %w", s.URL(), err)
	}
	return read, "", nil
}

// clusterctlsHost is the only host whose releases clusterctl reads.
const clusterctlsHost = "github.com"

// server is the address of a GitHub.
type server struct {
	// web is the site, e.g. "https://github.com".
	web string
	// api and uploads are the bases of the API, with a slash at the end.
	api, uploads *url.URL
}

// pipelineServer returns the site of the GitHub that a pipeline runs on.
func pipelineServer() *url.URL {
	u, err := url.Parse(cmp.Or(strings.TrimSuffix(os.Getenv("GITHUB_SERVER_URL"), "/"), "https://"+clusterctlsHost))
	if err != nil {
		return &url.URL{}
	}
	return u
}

// matches reports whether a text is a URL of github.com, or of the server that a pipeline runs on.
func matches(text string) bool {
	u, err := url.Parse(text)
	own := pipelineServer()
	return err == nil && u.Host != "" && (u.Scheme == "https" && strings.EqualFold(u.Host, clusterctlsHost) ||
		u.Scheme == own.Scheme && strings.EqualFold(u.Host, own.Host))
}

// newServer returns the addresses of the GitHub at a host.
// Source: GitHub docs, "Variables reference", GITHUB_API_URL and GITHUB_SERVER_URL; "Getting started
// with the REST API" of GitHub Enterprise Server and of GitHub Enterprise Cloud with data residency;
// "Upload a release asset".
func newServer(host string) (server, error) {
	at := server{web: "https://" + clusterctlsHost}
	api := "https://api." + clusterctlsHost
	if own := pipelineServer(); strings.EqualFold(own.Host, host) {
		at.web = own.String()
		switch given := os.Getenv("GITHUB_API_URL"); {
		case given != "":
			api = given
		case strings.HasSuffix(strings.ToLower(host), ".ghe.com"):
			api = "https://api." + host
		case !strings.EqualFold(host, clusterctlsHost):
			api = at.web + "/api/v3"
		}
	}
	var err error
	if at.api, err = url.Parse(strings.TrimSuffix(api, "/") + "/"); err != nil || at.api.Host == "" {
		return server{}, fmt.Errorf("GITHUB_API_URL is %q, which isn't a URL: set it to that of the API, e.g. https://api.github.com", api)
	}
	if at.api.Scheme != "https" && !transport.IsLoopback(at.api.Hostname()) {
		return server{}, fmt.Errorf("GITHUB_API_URL is %q: set it to an https URL, as a token is sent there", api)
	}
	uploads := *at.api
	if rest, ok := strings.CutPrefix(uploads.Host, "api."); ok {
		uploads.Host, uploads.Path = "uploads."+rest, "/"
	} else {
		uploads.Path = strings.TrimSuffix(strings.TrimSuffix(uploads.Path, "/"), "/v3") + "/uploads/"
	}
	at.uploads = &uploads
	return at, nil
}
