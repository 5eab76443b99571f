package program

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// File is a file of an archive.
type File struct {
	// Path has no slash at the start. A slash at the end marks a folder.
	Path string
	Mode int64
	Data []byte
}

// WithFolders returns files by path, with their parent folders.
func WithFolders(files []File) []File {
	entries := map[string]File{}
	for _, f := range files {
		entries[f.Path] = f
		for dir := path.Dir(strings.TrimSuffix(f.Path, "/")); dir != "."; dir = path.Dir(dir) {
			if _, listed := entries[dir+"/"]; !listed {
				entries[dir+"/"] = File{Path: dir + "/", Mode: 0o755}
			}
		}
	}
	return slices.SortedFunc(maps.Values(entries), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
}

// WriteTar writes files and their parent folders as a tar archive. All belong to root and have the same time.
func WriteTar(w io.Writer, files []File, modified time.Time) error {
	archive := tar.NewWriter(w)
	for _, f := range WithFolders(files) {
		header := &tar.Header{Name: f.Path, Mode: f.Mode, Typeflag: tar.TypeReg, Size: int64(len(f.Data)), ModTime: modified}
		if strings.HasSuffix(f.Path, "/") {
			header.Typeflag = tar.TypeDir
		}
		err := archive.WriteHeader(header)
		if err == nil {
			_, err = archive.Write(f.Data)
		}
		if err != nil {
			return fmt.Errorf("writing %s to an archive: %w", f.Path, err)
		}
	}
	return archive.Close()
}
