package publish

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

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// gitlabTarget is a generic package of a project on GitLab.
// Source: clusterctl provider contract, "Creating a provider repository on GitLab".
var gitlabTarget = target{
	form:    "https://HOST/api/v4/projects/ID/packages/generic/NAME, for a generic package on GitLab",
	notes:   true,
	matches: isGitLab,
	open: func(text string, opts Options) (Publisher, error) {
		g, rest, err := newGitLab(text, opts)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%q is more than a package: publish to %s", text, g.url())
		}
		if err != nil {
			return nil, err
		}
		return g, nil
	},
	read: readGitLab,
}

const (
	gitlabPrefix = "/api/v4/projects/"
	// clusterctlsGitLab begins the hosts that clusterctl takes for a GitLab.
	clusterctlsGitLab = "gitlab."
)

// gitlabPackage publishes versions of one generic package.
//
// A package has no drafts: each file is there for everybody once it has come. What clusterctl asks
// of a version always needs its metadata.yaml, so that this comes last and makes the version. First
// comes SHA256SUMS, which names every byte of the version: it is the claim of a publisher. Where
// duplicates are refused only one claim can be there; where they are allowed, that with the lowest
// id holds. A publisher whose bytes are not those of the claim that holds leaves the version alone;
// those with the same bytes, such as the re-run of one that was killed, go on with it together.
type gitlabPackage struct {
	host, project, name string
	client              *gitlab.Client //nolint:staticcheck // the module has another name since; its version is pinned here
	credential          credential
	opts                Options
}

// isGitLab says whether a text is a URL of GitLab's API of packages.
func isGitLab(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && strings.HasPrefix(u.EscapedPath(), gitlabPrefix)
}

// packageName are the names of generic packages.
// Source: GitLab docs, "GitLab generic packages repository", "Publish a package".
var packageName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// newGitLab returns the package that a URL begins with, and the rest of its path.
func newGitLab(text string, opts Options) (*gitlabPackage, []string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("the URL of a package on GitLab: %w", err)
	}
	if u.User != nil {
		return nil, nil, errors.New("the URL of a package on GitLab has a user or password in it: take it out, and put the token into GITLAB_TOKEN or a file for --token-file")
	}
	form := fmt.Errorf("%q is no package on GitLab: write https://%s%sID/packages/generic/NAME, where ID is the project's number, or its path with %%2F for each /", text, u.Host, gitlabPrefix)
	parts := strings.Split(strings.Trim(strings.TrimPrefix(u.EscapedPath(), gitlabPrefix), "/"), "/")
	if len(parts) < 4 || parts[1] != "packages" || parts[2] != "generic" || !packageName.MatchString(parts[3]) || u.RawQuery != "" || u.Fragment != "" {
		return nil, nil, form
	}
	project, err := url.PathUnescape(parts[0])
	if err != nil || project == "" {
		return nil, nil, form
	}
	g := &gitlabPackage{host: u.Host, project: project, name: parts[3], opts: opts}
	if g.credential, err = gitlabCredential(u.Host, opts); err != nil {
		return nil, nil, err
	}
	// The credential is set, and requests are tried again, below this client.
	g.client, err = gitlab.NewClient("", //nolint:staticcheck // as above
		gitlab.WithBaseURL("https://"+u.Host+"/api/v4"), gitlab.WithHTTPClient(newClient(g.credential, opts.remote)),
		gitlab.WithoutRetries(), gitlab.WithCustomLimiter(unlimited{}))
	if err != nil {
		return nil, nil, fmt.Errorf("the URL of a package on GitLab: %w", err)
	}
	g.client.UserAgent = "clusterctl-release"
	return g, parts[4:], nil
}

// The headers of tokens. A token's kind is told by its prefix.
// Source: GitLab docs, "Token overview", "Token prefixes".
const (
	accessHeader, jobHeader, deployHeader = "Private-Token", "Job-Token", "Deploy-Token"
	jobPrefix, deployPrefix               = "glcbt-", "gldt-"
)

// deployAdvice says what a deploy token is good for.
// Source: GitLab docs, "Deploy tokens", "GitLab public API".
const deployAdvice = "a deploy token sends and reads files of packages, and lists or removes nothing: publish with an access token, or a job's, and name the version to read"

// gitlabCredential returns the token of the user's, or that of the job that runs.
// Source: GitLab docs, "GitLab CI/CD job token"; "Predefined CI/CD variables", CI_SERVER_HOST.
func gitlabCredential(host string, opts Options) (credential, error) {
	c := credential{header: accessHeader, hosts: []string{host}}
	var err error
	if c.secret, err = readToken(opts.TokenFile, "GITLAB_TOKEN"); err != nil {
		return c, err
	}
	switch {
	case strings.HasPrefix(c.secret, deployPrefix):
		c.header = deployHeader
	case strings.HasPrefix(c.secret, jobPrefix):
		c.header = jobHeader
	case c.secret == "":
		c.header = jobHeader
		if own := os.Getenv("CI_SERVER_HOST"); own != "" && strings.EqualFold(strings.Split(host, ":")[0], own) {
			c.secret, err = readToken("", "CI_JOB_TOKEN")
		}
	}
	return c, err
}

// unlimited does not slow requests down; a limit is seen to where requests are tried again.
type unlimited struct{}

// Wait implements gitlab.RateLimiter.
func (unlimited) Wait(ctx context.Context) error { return ctx.Err() }

// url returns the base of clusterctl's URLs of the package.
func (g *gitlabPackage) url() string {
	return "https://" + g.host + gitlabPrefix + url.PathEscape(g.project) + "/packages/generic/" + g.name
}

// entryURL returns clusterctl's URL of a file in a version.
func (g *gitlabPackage) entryURL(version, file string) string {
	return g.url() + "/" + version + "/" + file
}

// place returns what stands for a version.
func (g *gitlabPackage) place(version string) string { return g.url() + "/" + version }

// failure says what an error of the API means to the user; nil stays nil.
func (g *gitlabPackage) failure(doing string, resp *gitlab.Response, err error) error {
	var answer *http.Response
	if resp != nil {
		answer = resp.Response
	}
	advice := map[int]string{
		http.StatusUnauthorized: "the token is missing or not accepted: it is read from --token-file, GITLAB_TOKEN or, in a job, CI_JOB_TOKEN; has it expired?",
		http.StatusForbidden:    "the token has no right to do this: it needs the scope api and the role of a developer; a job of another project has to be allowed in the project's settings",
		http.StatusNotFound:     "there is no such project, or the token may not see it; or its package registry is turned off",
	}
	if g.credential.header == deployHeader {
		advice[http.StatusUnauthorized] = deployAdvice
		advice[http.StatusNotFound] += "; " + deployAdvice
	}
	return answered(doing, answer, err, advice)
}

// hostWarning says that clusterctl does not know this host for a GitLab.
func (g *gitlabPackage) hostWarning() string {
	return fmt.Sprintf("clusterctl takes only hosts that begin with %q for a GitLab: it will not read from %s", clusterctlsGitLab, g.host)
}

// source returns where a version is built from, as far as it is known: the commit of the user's, or
// that of the job that runs.
func (g *gitlabPackage) source() source {
	from := source{repository: os.Getenv("CI_PROJECT_URL"), commit: g.opts.Commit}
	if from.commit == "" {
		from.commit = os.Getenv("CI_COMMIT_SHA")
	}
	if from.repository == "" && strings.Contains(g.project, "/") {
		from.repository = "https://" + g.host + "/" + g.project
	}
	return from
}

// gitlabFile is a file of a package.
type gitlabFile struct {
	id, pkg int
	name    string
	size    int
	sha256  string
}

// gitlabVersion is what is there for a version.
type gitlabVersion struct {
	packages []int
	hidden   bool
	// files are in the order in which they came.
	files []gitlabFile
}

// newest returns the file that is downloaded under a name, or false.
func (v gitlabVersion) newest(name string) (gitlabFile, bool) {
	for _, f := range slices.Backward(v.files) {
		if f.name == name {
			return f, true
		}
	}
	return gitlabFile{}, false
}

// claim returns the claim that holds, or false where nobody has claimed the version.
func (v gitlabVersion) claim() (gitlabFile, bool) {
	for _, f := range v.files {
		if f.name == ChecksumsFile {
			return f, true
		}
	}
	return gitlabFile{}, false
}

// hasVersion says whether clusterctl can use the version.
func (v gitlabVersion) complete() bool {
	_, ok := v.newest(release.MetadataFile)
	return ok
}

// look returns what is there for a version, hidden packages too: what is hidden is left out of
// lists, and downloaded all the same.
func (g *gitlabPackage) look(ctx context.Context, version string) (gitlabVersion, error) {
	var found gitlabVersion
	for _, status := range []string{"default", "hidden"} {
		packages, err := g.packages(ctx, version, status)
		if err != nil {
			return gitlabVersion{}, err
		}
		for _, p := range packages {
			found.packages = append(found.packages, p.ID)
			found.hidden = found.hidden || status == "hidden"
			if err := g.addFiles(ctx, &found, p.ID); err != nil {
				return gitlabVersion{}, err
			}
		}
	}
	slices.SortFunc(found.files, func(a, b gitlabFile) int { return a.id - b.id })
	return found, nil
}

func (g *gitlabPackage) addFiles(ctx context.Context, found *gitlabVersion, id int) error {
	for page := 1; page != 0; {
		files, resp, err := g.client.Packages.ListPackageFiles(g.project, id, &gitlab.ListPackageFilesOptions{Page: page, PerPage: githubPage}, gitlab.WithContext(ctx))
		if err != nil {
			return g.failure("listing the files of a package", resp, err)
		}
		for _, f := range files {
			found.files = append(found.files, gitlabFile{id: f.ID, pkg: id, name: f.FileName, size: f.Size, sha256: f.FileSHA256})
		}
		page = resp.NextPage
	}
	return nil
}

// packages returns the packages of a version; of all versions where it is empty.
// Job tokens may list them: gitlab-org/gitlab merge requests 91437 and 116059.
func (g *gitlabPackage) packages(ctx context.Context, version, status string) ([]*gitlab.Package, error) {
	opts := &gitlab.ListProjectPackagesOptions{
		ListOptions: gitlab.ListOptions{Page: 1, PerPage: githubPage},
		PackageType: gitlab.Ptr("generic"), PackageName: &g.name, Status: &status,
	}
	if version != "" {
		opts.PackageVersion = &version
	}
	var all []*gitlab.Package
	for opts.Page != 0 {
		some, resp, err := g.client.Packages.ListProjectPackages(g.project, opts, gitlab.WithContext(ctx))
		if err != nil {
			return nil, g.failure("listing the packages of "+g.url(), resp, err)
		}
		for _, p := range some {
			// The server searches for names, and servers before 16.6 do not know of versions.
			if p.Name == g.name && (version == "" || p.Version == version) {
				all = append(all, p)
			}
		}
		opts.Page = resp.NextPage
	}
	return all, nil
}

// download returns the bytes of a file.
func (g *gitlabPackage) download(ctx context.Context, version, name string) ([]byte, error) {
	data, resp, err := g.client.GenericPackages.DownloadPackageFile(g.project, g.name, version, name, gitlab.WithContext(ctx))
	return data, g.failure("downloading "+name, resp, err)
}
