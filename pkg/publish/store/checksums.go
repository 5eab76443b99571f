package store

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

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
func Unlisted(ctx context.Context, version string, read func(ctx context.Context, name string) ([]byte, error)) (*Snapshot, error) {
	s := &Snapshot{Version: version, Files: map[string]File{}}
	look := func(name string) ([]byte, error) {
		data, err := read(ctx, name)
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
