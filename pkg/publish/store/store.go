// Package store says what a server has to do so that releases can be published to it and read from
// it. The order of things - look, compare, stage, commit, read back, sweep - is pkg/publish's; a store
// only translates one step into the requests of one server. Each store is a folder next to this one.
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

// Latest stands for the version that clusterctl takes when it is asked for none.
const Latest = "latest"

// Store is a repository on a server: for each version, a flat set of files.
type Store interface {
	// URL names the repository, and Place what stands for a version there.
	URL() string
	Place(version string) string

	// Fits returns why versions can't be published here, as far as that is known without asking the
	// server, such as names of files or a missing token.
	Fits(all []*Version) error
	// Survey looks at the repository as a whole. It returns what users should know, and an error where
	// it takes no releases.
	Survey(ctx context.Context, all []*Version) (warnings []string, err error)

	// Look returns what is there for a version.
	Look(ctx context.Context, version string) (*Snapshot, error)
	// Aim returns what publishing a version changes on the server apart from its files, such as a tag, a
	// line each, and an error where that can't be done.
	Aim(ctx context.Context, v *Version, there *Snapshot) ([]string, error)
	// Stage puts the files of a version there, as far as nobody sees a part of it. The error is
	// ErrTaken where another publisher got in between. On an error nothing of this run is left, as far
	// as that can be done.
	Stage(ctx context.Context, v *Version, there *Snapshot) (Staged, error)
	// Commit makes public what was staged, in place of what was there. Where that is refused, what was
	// there is public again. The error is ErrTaken where another publisher got in between.
	Commit(ctx context.Context, s Staged) error
	// Settle waits until everybody sees the version and removes what runs before this one left. Staged
	// is nil where the version was there already.
	Settle(ctx context.Context, v *Version, s Staged) (warnings []string, err error)

	// Read returns the bytes of a file of a snapshot.
	Read(ctx context.Context, there *Snapshot, name string) ([]byte, error)
	// Versions returns the versions that are public, in any order.
	Versions(ctx context.Context) ([]string, error)
	// Reader returns what reads the files of a version as clusterctl does, by its own client. It is nil
	// where clusterctl does not read from here; the note says so.
	Reader(ctx context.Context, version string) (read func(ctx context.Context, name string) ([]byte, error), note string, err error)

	// Use says how published versions are used.
	Use(all []*Version) Use
}

// Kind is a kind of stores.
type Kind struct {
	// Form shows the user how such a repository is written, and ReadForm what follows it where releases
	// are read.
	Form, ReadForm string
	// Texts says that a version has a text, Drafts that it can be left to a person to make it public,
	// and Pages that there are pages for people.
	Texts, Drafts, Pages bool
	// Matches says whether a text names a repository of this kind.
	Matches func(text string) bool
	// Open returns the repository that a text begins with, and what the text names in it.
	Open func(text string, o Options) (Store, At, error)
}

// At is what a text names in a repository; the zero value is the repository itself.
type At struct{ Version, File string }

// Plain are the steps of a store where publishing a version changes nothing but its files.
type Plain struct{}

// Survey finds nothing.
func (Plain) Survey(context.Context, []*Version) ([]string, error) { return nil, nil }

// Aim finds nothing.
func (Plain) Aim(context.Context, *Version, *Snapshot) ([]string, error) { return nil, nil }

// Latester is a store that says which version clusterctl takes when it is asked for none, "" where there is
// none. The file is the one that is wanted of it. In other stores it is the highest stable version.
type Latester interface {
	LatestVersion(ctx context.Context, file string) (string, error)
}

// Pager is a store with pages for people: releases apart from what clusterctl reads.
type Pager interface {
	// Page makes the page of a version, and returns what was done; nil where there are to be no pages. Text
	// makes the text of a new page; where it is nil, Page only says what it would do.
	Page(ctx context.Context, v *Version, text func() string) (*Page, error)
}

// Aliaser is a store that offers files under further names, for other readers than clusterctl.
type Aliaser interface {
	// Aliases returns the files by these names.
	Aliases(v *Version) []release.File
}

// Options are what stores are opened with.
type Options struct {
	// TokenFile is a file with the token; empty takes it from the environment.
	TokenFile string
	// Commit is the commit that a version is tagged at where it has no tag and no record of its source.
	Commit string
	// Draft leaves it to a person to make a version public.
	Draft bool
	// Pages makes pages for people where the server has them apart from what clusterctl reads.
	Pages bool
	// Tell is told what takes time, and Report, which may be nil, what is waited for.
	Tell, Report func(string)
	// Network is for tests.
	Network transport.Network
}

// ErrTaken says that another publisher got in between: looking again says what to do.
var ErrTaken = errors.New("another publisher is at work on the version")

// File is a file as the server describes it.
type File struct {
	// Size is its number of bytes; -1 where the server does not say.
	Size int64
	// SHA256 is its digest in hexadecimal, or empty where the server does not say.
	SHA256 string
}

// Snapshot is what was there for a version.
type Snapshot struct {
	Version string
	// Files are those that anybody can read, by their names.
	Files map[string]File
	// Public says that the version is there for clusterctl's users, whole or not, and Begun that a
	// publisher has put files there that are not public.
	Public, Begun bool
	// Complete says that it has what makes it a version: on servers without drafts its metadata.yaml,
	// which comes last.
	Complete bool
	// Claim is the digest of the checksums that a publisher put there before the files, on servers
	// without drafts; empty where nobody did.
	Claim string
	// Immutable says that the server lets nothing take the place of the version.
	Immutable bool
	// Text is the title and text that people have prepared for the version.
	Text Text
	// Hint is what to do about a version that can't be gone on with.
	Hint string
	// Warnings are what users should know of it.
	Warnings []string
	// Doubles are further places where the same version is public, which should not be.
	Doubles []string
	// Own is the store's.
	Own any
}

// Text is what a release says of itself.
type Text struct{ Title, Body string }

// Staged is what a store has staged.
type Staged any

// Use says how published versions are used.
type Use struct {
	// Entries are those of clusterctl's configuration; none where clusterctl does not read from here.
	Entries []Entry
	// Text says how something other than clusterctl reads the versions.
	Text string
	// Warnings are what users should know.
	Warnings []string
}

// Entry is an entry of the list "providers" in clusterctl's configuration.
// Source: clusterctl configuration, "Provider repositories".
type Entry struct {
	Name string                    `json:"name"`
	URL  string                    `json:"url"`
	Type clusterctlv1.ProviderType `json:"type"`
}

// Action is what happens to a release, a page or a file.
type Action string

// The actions.
const (
	Create    Action = "create"
	Update    Action = "update"
	Replace   Action = "replace"
	Unchanged Action = "unchanged"
	Refused   Action = "refused"
)

// Page is what was, or would be, done about a page for people.
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
			return nil, fmt.Errorf("%s:%d: %s is there twice", ChecksumsFile, line, name)
		}
		sums[name] = strings.ToLower(sum)
	}
	return sums, nil
}

// Unlisted returns what is there for a version where the server lists nothing: the files in its
// checksums or, where it has no checksums, those that clusterctl asks for.
func Unlisted(ctx context.Context, version string, read func(ctx context.Context, there *Snapshot, name string) ([]byte, error)) (*Snapshot, error) {
	s := &Snapshot{Version: version, Files: map[string]File{}}
	look := func(name string) ([]byte, error) {
		data, err := read(ctx, s, name)
		if transport.HasStatus(err, http.StatusNotFound) {
			return nil, nil
		}
		if err == nil {
			s.Files[name] = File{Size: int64(len(data)), SHA256: Digest(data)}
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

// ComponentsFiles returns the names that the contract gives components.
func ComponentsFiles() []string {
	var names []string
	for _, t := range release.ProviderTypes() {
		names = append(names, release.Provider{Type: t}.ComponentsFile())
	}
	return names
}
