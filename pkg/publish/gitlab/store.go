// Package gitlab publishes to generic packages of a project on GitLab.
//
// A package has no drafts: each file is visible once it is uploaded. store.Claims makes a version complete in one step.
// A project's release, a page for people, is created as well.
package gitlab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/xanzy/go-gitlab"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Kind is a generic package of a project on GitLab.
// Source: clusterctl provider contract, "Creating a provider repository on GitLab".
var Kind = store.Kind{
	Form:     "https://HOST/api/v4/projects/ID/packages/generic/NAME, for a generic package on GitLab",
	ReadForm: "/VERSION/COMPONENTS-FILE as in clusterctl's configuration",
	Texts:    true,
	Pages:    true,
	Matches:  matches,
	Open:     open,
}

const (
	projectsPath = "/api/v4/projects/"
	// clusterctlsHosts is the prefix of the hosts that clusterctl treats as GitLab.
	clusterctlsHosts = "gitlab."
	// pageSize is how many entries a page of a list has.
	pageSize = 100
)

type pkg struct {
	*store.Claims

	host, project, name string
	client              *gitlab.Client //nolint:staticcheck // the module has another name since; its version is pinned here
	credential          transport.Credential
	opts                store.Options
}

// matches reports whether a text is a URL of GitLab's API of packages.
func matches(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && strings.HasPrefix(u.EscapedPath(), projectsPath)
}

// packageName matches the names of generic packages.
// Source: GitLab docs, "GitLab generic packages repository", "Publish a package".
var packageName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// open returns the package in a URL, and the version and file after it.
func open(text string, opts store.Options) (store.Store, store.At, error) {
	u, err := store.ParseURL(text, "a package on GitLab", "GITLAB_TOKEN")
	if err != nil {
		return nil, store.At{}, err
	}
	form := fmt.Errorf("%q isn't a package on GitLab: write https://%s%sID/packages/generic/NAME, where ID is the project's number, or its path with %%2F for each /", text, u.Host, projectsPath)
	parts := strings.Split(strings.Trim(strings.TrimPrefix(u.EscapedPath(), projectsPath), "/"), "/")
	if len(parts) < 4 || len(parts) > 6 || parts[1] != "packages" || parts[2] != "generic" || !packageName.MatchString(parts[3]) || u.RawQuery != "" || u.Fragment != "" {
		return nil, store.At{}, form
	}
	project, err := url.PathUnescape(parts[0])
	if err != nil || project == "" {
		return nil, store.At{}, form
	}
	s := &pkg{host: u.Host, project: project, name: parts[3], opts: opts}
	if s.credential, err = credentialFor(u.Host, opts); err != nil {
		return nil, store.At{}, err
	}
	client := transport.New(transport.Options{Credential: s.credential, Network: opts.Network, Report: opts.Report})
	s.Claims = store.NewClaims(s, client, opts.Tell)
	// The transport below this client sets the credential and retries requests.
	s.client, err = gitlab.NewClient("", //nolint:staticcheck // as above
		gitlab.WithBaseURL("https://"+u.Host+"/api/v4"), gitlab.WithHTTPClient(client.HTTP),
		gitlab.WithoutRetries(), gitlab.WithCustomLimiter(unlimited{}))
	if err != nil {
		return nil, store.At{}, fmt.Errorf("the URL of a package on GitLab: %w", err)
	}
	s.client.UserAgent = "clusterctl-release"
	parts = append(parts, "", "")
	return s, store.At{Version: parts[4], File: parts[5]}, nil
}

// The headers of tokens. The prefix of a token shows its kind.
// Source: GitLab docs, "Token overview", "Token prefixes".
const (
	accessHeader, jobHeader, deployHeader = "Private-Token", "Job-Token", "Deploy-Token"
	jobPrefix, deployPrefix               = "glcbt-", "gldt-"
)

// deployAdvice explains the limits of a deploy token.
// Source: GitLab docs, "Deploy tokens", "GitLab public API".
const deployAdvice = "a deploy token sends and reads files of packages, and lists or removes nothing: publish with an access token, or a job's, and name the version to read"

// credentialFor returns the user's token, or that of the current job.
// Source: GitLab docs, "GitLab CI/CD job token"; "Predefined CI/CD variables", CI_SERVER_HOST.
func credentialFor(host string, opts store.Options) (transport.Credential, error) {
	c := transport.Credential{Header: accessHeader, Hosts: []string{host}}
	var err error
	if c.Secret, err = store.ReadToken(opts.TokenFile, "GITLAB_TOKEN"); err != nil {
		return c, err
	}
	switch {
	case strings.HasPrefix(c.Secret, deployPrefix):
		c.Header = deployHeader
	case strings.HasPrefix(c.Secret, jobPrefix):
		c.Header = jobHeader
	case c.Secret == "":
		c.Header = jobHeader
		if own := os.Getenv("CI_SERVER_HOST"); own != "" && strings.EqualFold(strings.Split(host, ":")[0], own) {
			c.Secret, err = store.ReadToken("", "CI_JOB_TOKEN")
		}
	}
	return c, err
}

// unlimited does not slow down requests; the retries handle a limit.
type unlimited struct{}

func (unlimited) Wait(ctx context.Context) error { return ctx.Err() }

// URL returns the base of clusterctl's URLs of the package.
func (s *pkg) URL() string {
	return "https://" + s.host + projectsPath + url.PathEscape(s.project) + "/packages/generic/" + s.name
}

func (s *pkg) Place(version string) string { return s.URL() + "/" + version }

// entryURL returns clusterctl's URL of a file in a version.
func (s *pkg) entryURL(version, file string) string { return s.Place(version) + "/" + file }

// failure adds advice for the user to an error of the API; nil stays nil.
func (s *pkg) failure(doing string, resp *gitlab.Response, err error) error {
	var answer *http.Response
	if resp != nil {
		answer = resp.Response
	}
	advice := map[int]string{
		http.StatusUnauthorized: "the token is missing or not accepted: it is read from Options.TokenFile, GITLAB_TOKEN or, in a job, CI_JOB_TOKEN; has it expired?",
		http.StatusForbidden:    "the token has no right to do this: it needs the scope api and the role of a developer; a job of another project has to be allowed in the project's settings",
		http.StatusNotFound:     "there is no such project, or the token may not see it; or its package registry is turned off",
	}
	if s.credential.Header == deployHeader {
		advice[http.StatusUnauthorized] = deployAdvice
		advice[http.StatusNotFound] += "; " + deployAdvice
	}
	return transport.Answered(doing, answer, err, advice)
}

func (s *pkg) Fits(all []*store.Version) error {
	problems := store.CheckNames(all, "GitLab", fileName)
	if s.credential.Secret == "" {
		problems = append(problems, fmt.Errorf("there is no token to publish to %s with: give Options.TokenFile, set GITLAB_TOKEN, or run it in a job there, which has CI_JOB_TOKEN", s.host))
	}
	return errors.Join(problems...)
}

// fileName matches the names of files in a package.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.+-]*$`)

func (s *pkg) Survey(context.Context, []*store.Version) ([]string, error) {
	if warning := s.hostWarning(); warning != "" {
		return []string{warning}, nil
	}
	return nil, nil
}

// hostWarning warns that clusterctl does not recognize this host as a GitLab; it is empty if it does.
func (s *pkg) hostWarning() string {
	if strings.HasPrefix(s.host, clusterctlsHosts) {
		return ""
	}
	return fmt.Sprintf("clusterctl takes only hosts that begin with %q for a GitLab: it will not read from %s", clusterctlsHosts, s.host)
}

func (s *pkg) Aim(ctx context.Context, v *store.Version, _ *store.Snapshot) ([]string, error) {
	commit, err := s.commitToTag(ctx, v)
	if err != nil || commit == "" || !s.opts.Pages {
		return nil, err
	}
	return []string{fmt.Sprintf("the commit %s is tagged %s", commit, v.Number)}, nil
}

// Use returns an entry for each provider. clusterctl can't determine the latest version of a package, so an entry names
// the highest.
func (s *pkg) Use(all []*store.Version) store.Use {
	releases := store.Releases(all)
	highest := slices.DeleteFunc(slices.Clone(releases), func(r *release.Release) bool { return !store.Newest(releases, r) })
	return store.Use{Entries: store.Entries(highest, func(r *release.Release) string {
		return s.entryURL(r.Version, r.Provider.ComponentsFile())
	})}
}

// Look lists the files. A deploy token can't list them, so Look tries the files that it can read.
func (s *pkg) Look(ctx context.Context, version string) (*store.Snapshot, error) {
	if s.credential.Header == deployHeader {
		return store.Unlisted(ctx, version, s.Read)
	}
	there, err := s.Claims.Look(ctx, version)
	if err != nil {
		return nil, err
	}
	unseen, err := s.packages(ctx, version, hidden)
	if len(unseen) > 0 {
		there.Warnings = append(there.Warnings, fmt.Sprintf("the package of %s is hidden: clusterctl reads it, and people do not find it", version))
	}
	return there, err
}

func (s *pkg) Versions(ctx context.Context) ([]string, error) {
	packages, err := s.packages(ctx, "", shown)
	var versions []string
	for _, p := range packages {
		if _, err := release.ParseVersion(p.Version); err == nil {
			versions = append(versions, p.Version)
		}
	}
	return versions, err
}

func (s *pkg) Reader(ctx context.Context, version string) (func(context.Context, string) ([]byte, error), string, error) {
	read, err := s.opts.Reader(version, s.entryURL, func() (repository.Repository, error) {
		return store.ClusterctlClient(ctx, repository.NewGitLabRepository, s.entryURL(version, release.MetadataFile), config.GitLabAccessTokenVariable, s.credential)
	})
	return read, s.hostWarning(), err
}

// commitToTag returns the commit to tag a version at, as store.Options.CommitToTag. It is "" if no commit is known;
// then the server decides.
func (s *pkg) commitToTag(ctx context.Context, v *store.Version) (string, error) {
	tagged, err := s.tagCommit(ctx, v.Number)
	if err != nil {
		return "", err
	}
	pipeline := os.Getenv("CI_COMMIT_SHA")
	if v.Source() == nil && s.opts.Commit == "" && tagged == "" && pipeline == "" {
		return "", nil
	}
	return s.opts.CommitToTag(v, s.URL(), tagged, pipeline)
}

// tagCommit returns the commit of a version's tag, or "" if the tag does not exist or the token may not read it: tokens
// of jobs can't read tags on many servers.
//
// Source: GitLab docs, "Tags API"; "CI/CD job token", "Job token access".
func (s *pkg) tagCommit(ctx context.Context, version string) (string, error) {
	host, _, _ := strings.Cut(s.host, ":")
	own := strings.EqualFold(os.Getenv("CI_SERVER_HOST"), host) &&
		(os.Getenv("CI_PROJECT_ID") == s.project || strings.EqualFold(os.Getenv("CI_PROJECT_PATH"), s.project))
	if own && os.Getenv("CI_COMMIT_TAG") == version {
		return os.Getenv("CI_COMMIT_SHA"), nil
	}
	tag, resp, err := s.client.Tags.GetTag(s.project, version, gitlab.WithContext(ctx))
	if err != nil || tag.Commit == nil {
		return "", transport.Unless(s.failure("looking for the tag "+version, resp, err), http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden)
	}
	return tag.Commit.ID, nil
}
