// Package store defines the steps of a server for publishing and reading releases. pkg/publish determines their order -
// look, compare, stage, commit, read back, settle; a store only translates one step into the requests of one server.
// Each store is a folder next to this one.
package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Latest stands for clusterctl's default version.
const Latest = "latest"

// Store is a repository on a server: for each version, a flat set of files.
type Store interface {
	// URL names the repository, and Place a version in it.
	URL() string
	Place(version string) string

	// Fits returns the reasons for which versions can't be published here that need no request to the server, such as
	// names of files or a missing token.
	Fits(all []*Version) error
	// Survey checks the repository as a whole. It returns warnings for users, and an error if it accepts no releases.
	Survey(ctx context.Context, all []*Version) (warnings []string, err error)

	// Look returns the snapshot of a version.
	Look(ctx context.Context, version string) (*Snapshot, error)
	// Aim describes the changes on the server other than files, such as a tag, a line each. The error means that they
	// can't be made.
	Aim(ctx context.Context, v *Version, there *Snapshot) ([]string, error)
	// Stage uploads the files of a version without making a part of it visible, if possible. The error is ErrTaken if
	// another publisher interfered. After an error, no data of this run is left, if possible.
	Stage(ctx context.Context, v *Version, there *Snapshot) (Staged, error)
	// Commit makes the staged version public, and replaces an old one. If that is refused, the old one is public again.
	// The error is ErrTaken if another publisher interfered.
	Commit(ctx context.Context, s Staged) error
	// Settle waits until the version is visible to all users, and removes remains of earlier runs. Staged is nil if the
	// version already existed.
	Settle(ctx context.Context, v *Version, s Staged) (warnings []string, err error)

	// Read returns the bytes of a file of a snapshot.
	Read(ctx context.Context, there *Snapshot, name string) ([]byte, error)
	// Versions returns the versions that are public, in any order.
	Versions(ctx context.Context) ([]string, error)
	// Reader returns a function that reads the files of a version with clusterctl's own client. It is nil if clusterctl
	// does not read from here; the note gives the reason.
	Reader(ctx context.Context, version string) (read func(ctx context.Context, name string) ([]byte, error), note string, err error)

	// Use describes how published versions are used.
	Use(all []*Version) Use
}

// Kind is a kind of stores.
type Kind struct {
	// Form shows users how to write such a repository, and ReadForm the suffix for reading releases.
	Form, ReadForm string
	// Texts means that a version has a text, Drafts that it can be left as a draft, and Pages that the server has pages
	// for people.
	Texts, Drafts, Pages bool
	// Matches reports whether a text names a repository of this kind.
	Matches func(text string) bool
	// Open returns the repository in a text, and the part of it that the text names.
	Open func(text string, o Options) (Store, At, error)
}

// At is the part of a repository that a text names; the zero value is the repository itself.
type At struct{ Version, File string }

// Plain contains the steps of a store in which publishing a version changes only its files.
type Plain struct{}

// Survey finds nothing.
func (Plain) Survey(context.Context, []*Version) ([]string, error) { return nil, nil }

// Aim finds nothing.
func (Plain) Aim(context.Context, *Version, *Snapshot) ([]string, error) { return nil, nil }

// Latester is a store that returns clusterctl's default version, "" if there is none. file is the required file. In
// other stores it is the highest stable version.
type Latester interface {
	LatestVersion(ctx context.Context, file string) (string, error)
}

// Pager is a store with pages for people: releases that clusterctl does not read.
type Pager interface {
	// Page creates the page of a version, and returns the action; nil if pages are not wanted. text returns the text of
	// a new page; if it is nil, Page only plans.
	Page(ctx context.Context, v *Version, text func() string) (*Page, error)
}

// Aliaser is a store that offers files under further names, for other programs than clusterctl.
type Aliaser interface {
	// Aliases returns the files by these names.
	Aliases(v *Version) []release.File
}

// Options are the options for opening a store.
type Options struct {
	// TokenFile is a file with the token; if it is empty, the token comes from the environment.
	TokenFile string
	// Commit is the commit to tag a version at if it has neither a tag nor a record of its source.
	Commit string
	// Draft leaves a version as a draft.
	Draft bool
	// Pages creates pages for people if the server has them separately.
	Pages bool
	// Tell receives the slow steps, and Report, which may be nil, the waits.
	Tell, Report func(string)
	// Network is for tests.
	Network transport.Network
}

// ErrTaken means that another publisher interfered: another look shows what to do.
var ErrTaken = errors.New("another publisher is at work on the version")

// File is a file as the server describes it.
type File struct {
	// Size is its number of bytes; -1 if the server does not know it.
	Size int64
	// SHA256 is its digest in hexadecimal, or empty if the server does not know it.
	SHA256 string
}

// Snapshot is the state of a version on the server.
type Snapshot struct {
	Version string
	// Files are the public files, by their names.
	Files map[string]File
	// Public means that the version is visible to clusterctl's users, complete or not, and Begun that a publisher has
	// uploaded files that are not public.
	Public, Begun bool
	// Complete means that the version has its final file: on servers without drafts its metadata.yaml.
	Complete bool
	// Claim is the digest of the checksums that a publisher uploaded before the files, on servers without drafts; empty
	// without a claim.
	Claim string
	// Immutable means that the server does not allow to replace the version.
	Immutable bool
	// Text is the title and text that people have prepared for the version.
	Text Text
	// Hint says what to do about a version that can't be continued.
	Hint string
	// Warnings are warnings for users.
	Warnings []string
	// Doubles are further places of the same public version, which should not exist.
	Doubles []string
	// Own is data of the store.
	Own any
}

// Text is the title and the text of a release.
type Text struct{ Title, Body string }

// Staged is what a store has staged.
type Staged any

// Use describes how published versions are used.
type Use struct {
	// Entries are those of clusterctl's configuration; none if clusterctl does not read from here.
	Entries []Entry
	// Text describes how other programs than clusterctl read the versions.
	Text string
	// Warnings are warnings for users.
	Warnings []string
}

// Entry is an entry of the list "providers" in clusterctl's configuration.
// Source: clusterctl configuration, "Provider repositories".
type Entry struct {
	Name string                    `json:"name"`
	URL  string                    `json:"url"`
	Type clusterctlv1.ProviderType `json:"type"`
}

// Action is the action for a release, a page or a file.
type Action string

// The actions.
const (
	Create    Action = "create"
	Update    Action = "update"
	Replace   Action = "replace"
	Unchanged Action = "unchanged"
	Refused   Action = "refused"
)

// Page is the planned or executed action for a page for people.
type Page struct {
	// Place is its URL.
	Place string
	// Action is Create, Update or Unchanged.
	Action Action
	// Links are the names of the links that it gets.
	Links []string
}

// ParseChecksums reads the format of the program sha256sum: digests by names.
func ParseChecksums(data []byte) (map[string]string, error) {
	sums := map[string]string{}
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		text = strings.TrimRight(text, "\r\n")
		sum, name, ok := strings.Cut(text, " ")
		name = strings.TrimPrefix(strings.TrimPrefix(name, " "), "*")
		if !ok || len(sum) != 64 || strings.Trim(sum, "0123456789abcdefABCDEF") != "" || name == "" || strings.ContainsAny(name, `/\`) {
			return nil, fmt.Errorf("%s:%d: the line must be a SHA-256 digest and the name of a file", ChecksumsFile, line)
		}
		if _, twice := sums[name]; twice {
			return nil, fmt.Errorf("%s:%d: %s is listed twice", ChecksumsFile, line, name)
		}
		sums[name] = strings.ToLower(sum)
	}
	return sums, nil
}

// Unlisted returns the snapshot of a version on a server without lists: the files in its checksums or, without
// checksums, those that clusterctl requests.
func Unlisted(ctx context.Context, version string, read func(ctx context.Context, there *Snapshot, name string) ([]byte, error)) (*Snapshot, error) {
	s := &Snapshot{Version: version, Files: map[string]File{}}
	look := func(name string) ([]byte, error) {
		data, err := read(ctx, s, name)
		if transport.HasStatus(err, http.StatusNotFound) {
			return nil, nil
		}
		if err == nil {
			s.Files[name] = File{Size: int64(len(data)), SHA256: release.Digest(data)}
		}
		return data, err
	}
	sums, err := look(ChecksumsFile)
	if err != nil {
		return nil, err
	}
	probed := append(ComponentsFiles(), release.MetadataFile)
	if sums != nil {
		listed, err := ParseChecksums(sums)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(listed)) {
			s.Files[name] = File{Size: -1, SHA256: listed[name]}
		}
		probed = []string{ProvenanceFile}
	}
	for _, name := range probed {
		if _, err := look(name); err != nil {
			return nil, err
		}
	}
	_, s.Complete = s.Files[release.MetadataFile]
	s.Public = len(s.Files) > 0
	return s, nil
}

// ComponentsFiles returns the contract's names for components.
func ComponentsFiles() []string {
	var names []string
	for _, t := range release.ProviderTypes() {
		names = append(names, release.Provider{Type: t}.ComponentsFile())
	}
	return names
}
