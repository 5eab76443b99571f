package publish

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// githubTarget is the releases of a repository on GitHub.
// Source: clusterctl provider contract, "Creating a provider repository on GitHub".
var githubTarget = target{
	form:    "https://github.com/OWNER/REPO (with GITHUB_SERVER_URL also a GitHub Enterprise server)",
	notes:   true,
	matches: isGitHub,
	open: func(text string, opts Options) (Publisher, error) {
		g, rest, err := newGitHub(text, opts)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%q is more than a repository: publish to %s/%s/%s", text, g.server.web, g.owner, g.name)
		}
		if err != nil {
			return nil, err
		}
		return g, nil
	},
	read: readGitHub,
}

// clusterctlsGitHub is the only host whose releases clusterctl reads.
const clusterctlsGitHub = "github.com"

// githubServer is where a GitHub is spoken to.
type githubServer struct {
	// web is the site, e.g. "https://github.com".
	web string
	// api and uploads are the bases of the API, with a slash at the end.
	api, uploads *url.URL
}

// githubRepository publishes to the releases of one repository.
//
// A version is built up in a draft, which nobody but the repository's own people sees, and made
// public by one request once every file in it has been compared. GitHub has no lock and no request
// that depends on what is there, but one thing that only one of many succeeds in: making a tag's
// release public. The rest follows from that. Each run works in a draft of its own, so that nobody
// makes public what somebody else is changing; a run that is killed leaves a draft behind, which
// may be the draft of a run that is still at work, and so is removed only once the tag is taken.
type githubRepository struct {
	server      githubServer
	owner, name string
	client      *github.Client
	token       string
	opts        Options
}

// githubWeb returns the site of the GitHub that a pipeline runs on.
func githubWeb() string {
	if web := strings.TrimSuffix(os.Getenv("GITHUB_SERVER_URL"), "/"); web != "" {
		return web
	}
	return "https://" + clusterctlsGitHub
}

// isGitHub says whether a text is a URL of github.com, or of the server that GITHUB_SERVER_URL names.
func isGitHub(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return false
	}
	own, err := url.Parse(githubWeb())
	return u.Scheme == "https" && strings.EqualFold(u.Host, clusterctlsGitHub) ||
		err == nil && u.Scheme == own.Scheme && strings.EqualFold(u.Host, own.Host)
}

// newGitHubServer returns where the GitHub at a host is spoken to.
// Source: GitHub docs, "Variables reference", GITHUB_API_URL and GITHUB_SERVER_URL; "Getting started
// with the REST API" of GitHub Enterprise Server and of GitHub Enterprise Cloud with data residency;
// "Upload a release asset".
func newGitHubServer(host string) (githubServer, error) {
	server := githubServer{web: "https://" + clusterctlsGitHub}
	api := "https://api." + clusterctlsGitHub
	if own, err := url.Parse(githubWeb()); err == nil && strings.EqualFold(own.Host, host) {
		server.web = githubWeb()
		switch given := os.Getenv("GITHUB_API_URL"); {
		case given != "":
			api = given
		case strings.HasSuffix(strings.ToLower(host), ".ghe.com"):
			api = "https://api." + host
		case !strings.EqualFold(host, clusterctlsGitHub):
			api = server.web + "/api/v3"
		}
	}
	var err error
	if server.api, err = url.Parse(strings.TrimSuffix(api, "/") + "/"); err != nil || server.api.Host == "" {
		return githubServer{}, fmt.Errorf("GITHUB_API_URL is %q, which is no URL: set it to that of the API, e.g. https://api.github.com", api)
	}
	if server.api.Scheme != "https" && !isLoopback(server.api.Hostname()) {
		return githubServer{}, fmt.Errorf("GITHUB_API_URL is %q: set it to an https URL, as a token is sent there", api)
	}
	uploads := *server.api
	if rest, ok := strings.CutPrefix(uploads.Host, "api."); ok {
		uploads.Host, uploads.Path = "uploads."+rest, "/"
	} else {
		uploads.Path = strings.TrimSuffix(strings.TrimSuffix(uploads.Path, "/"), "/v3") + "/uploads/"
	}
	server.uploads = &uploads
	return server, nil
}

// The names that GitHub gives to owners and repositories.
var githubName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// commitName is the full hash of a commit.
var commitName = regexp.MustCompile(`^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`)

// newGitHub returns the repository that a URL begins with, and the rest of its path.
func newGitHub(text string, opts Options) (*githubRepository, []string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("the URL of a GitHub repository: %w", err)
	}
	if u.User != nil {
		return nil, nil, errors.New("the URL of a GitHub repository has a user or password in it: take it out, and put the token into GITHUB_TOKEN or a file for --token-file")
	}
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(path) < 2 || u.RawQuery != "" || u.Fragment != "" || !githubName.MatchString(path[0]) || !githubName.MatchString(path[1]) {
		return nil, nil, fmt.Errorf("%q is no GitHub repository: write https://%s/OWNER/REPO", text, u.Host)
	}
	if opts.Commit != "" && !commitName.MatchString(opts.Commit) {
		return nil, nil, fmt.Errorf("%q is no commit: give its full hash, as git rev-parse HEAD prints it", opts.Commit)
	}
	server, err := newGitHubServer(u.Host)
	if err != nil {
		return nil, nil, err
	}
	variables := []string{"GITHUB_TOKEN", "GH_TOKEN"}
	if own, err := url.Parse(githubWeb()); err != nil || !strings.EqualFold(own.Host, u.Host) {
		variables = nil // what is in GITHUB_TOKEN is for the server that the pipeline runs on
	}
	token, err := readToken(opts.TokenFile, variables...)
	if err != nil {
		return nil, nil, err
	}
	g := &githubRepository{server: server, owner: path[0], name: strings.TrimSuffix(path[1], ".git"), token: token, opts: opts}
	g.client = github.NewClient(newClient(credential{
		header: "Authorization", prefix: "Bearer ", secret: token,
		hosts: []string{server.api.Host, server.uploads.Host},
	}, opts.remote))
	g.client.BaseURL, g.client.UploadURL = server.api, server.uploads
	g.client.UserAgent = "clusterctl-release"
	return g, path[2:], nil
}

// url returns the page of the repository.
func (g *githubRepository) url() string {
	return g.server.web + "/" + g.owner + "/" + g.name
}

// clusterctlReads says whether clusterctl's own client reads from here.
func (g *githubRepository) clusterctlReads() bool {
	return strings.EqualFold(g.server.web, "https://"+clusterctlsGitHub)
}

// failure says what an error of the API means to the user; nil stays nil.
func (g *githubRepository) failure(doing string, resp *github.Response, err error) error {
	var answer *http.Response
	if resp != nil {
		answer = resp.Response
	}
	const moved = "the repository was renamed or moved: publish to where it is now"
	return answered(doing, answer, err, map[int]string{
		http.StatusUnauthorized:      "the token is not accepted: is it one of this server, and has it expired? It is read from GITHUB_TOKEN, GH_TOKEN or --token-file",
		http.StatusForbidden:         "the token has no right to do this: it needs contents: write (in a workflow: permissions: {contents: write})",
		http.StatusNotFound:          g.notFoundAdvice(),
		http.StatusMovedPermanently:  moved,
		http.StatusFound:             moved,
		http.StatusTemporaryRedirect: moved,
		http.StatusPermanentRedirect: moved,
	})
}

func (g *githubRepository) notFoundAdvice() string {
	if g.token == "" {
		return "there is no such repository, or it is private: set GITHUB_TOKEN, or give --token-file"
	}
	return "there is no such repository, or the token may not see it: it needs contents: write there"
}

// check makes sure that the repository is there, under this name, and takes releases.
func (g *githubRepository) check(ctx context.Context) error {
	repository, resp, err := g.client.Repositories.Get(ctx, g.owner, g.name)
	if err != nil {
		return g.failure("looking at "+g.url(), resp, err)
	}
	if full := repository.GetFullName(); full != "" && !strings.EqualFold(full, g.owner+"/"+g.name) {
		return fmt.Errorf("%s is now called %s: publish to %s/%s", g.url(), full, g.server.web, full)
	}
	if repository.GetArchived() {
		return fmt.Errorf("%s is archived, and takes no releases: publish to another repository", g.url())
	}
	return nil
}

// tagCommit returns the commit that a version's tag is of, or "" where there is no such tag.
func (g *githubRepository) tagCommit(ctx context.Context, version string) (string, error) {
	doing := "looking for the tag " + version
	ref, resp, err := g.client.Git.GetRef(ctx, g.owner, g.name, "tags/"+version)
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return "", nil
	}
	if err != nil {
		return "", g.failure(doing, resp, err)
	}
	object := ref.GetObject()
	if object.GetType() != "tag" {
		return object.GetSHA(), nil
	}
	tag, resp, err := g.client.Git.GetTag(ctx, g.owner, g.name, object.GetSHA())
	if err != nil {
		return "", g.failure(doing, resp, err)
	}
	return tag.GetObject().GetSHA(), nil
}

// target returns the commit to tag a version at, or "" where it is tagged, and the commit that it
// is built from.
func (g *githubRepository) target(ctx context.Context, version string) (tag, built string, err error) {
	tagged, err := g.tagCommit(ctx, version)
	if err != nil {
		return "", "", err
	}
	commit := g.opts.Commit
	if commit == "" && tagged == "" && strings.EqualFold(os.Getenv("GITHUB_REPOSITORY"), g.owner+"/"+g.name) {
		commit = os.Getenv("GITHUB_SHA")
	}
	switch {
	case tagged == "" && commit == "":
		return "", "", fmt.Errorf("%s has no tag %s: push the tag first, or name the commit to tag (--commit)", g.url(), version)
	case tagged == "":
		return commit, commit, nil
	case g.opts.Commit != "" && !strings.EqualFold(g.opts.Commit, tagged):
		return "", "", fmt.Errorf("the tag %s of %s is of the commit %s, and not of %s: publish what was built from the tag, or another version", version, g.url(), tagged, commit)
	}
	return "", tagged, nil
}

// draftMark begins the text of a draft that this program works in, with the run that made it. The
// text of a public release has none.
const draftMark = "<!-- clusterctl-release draft"

// newDraftMark returns a mark that no other run has, with the time.
func newDraftMark(now time.Time) string {
	return draftMark + " " + rand.Text() + " " + now.UTC().Format(time.RFC3339) + " -->"
}

// place returns the page of a version.
func (g *githubRepository) place(version string) string {
	return g.url() + "/releases/tag/" + version
}

// Fetch implements Publisher.
func (g *githubRepository) Fetch(ctx context.Context, provider release.Provider, version string) (*release.Release, error) {
	if err := provider.Validate(); err != nil {
		return nil, err
	}
	f, err := g.fetch(ctx, version, provider.ComponentsFile(), &provider)
	return f.release, err
}
