package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/program"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// filesFor returns the files for one platform, the archive first.
func (d *distribution) filesFor(ctx context.Context, platform program.Platform, shared []program.File) ([]release.File, error) {
	compiled, err := d.compile(ctx, platform)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(compiled)
	if err != nil {
		return nil, err
	}
	licences, err := program.Tool(d.version).Licences(ctx, d.root, platform)
	if err != nil {
		return nil, err
	}
	bill, err := d.bill(compiled)
	if err != nil {
		return nil, err
	}
	content := append([]program.File{{Path: d.programName(platform), Mode: 0o755, Data: binary}}, shared...)
	for _, licence := range licences {
		content = append(content, program.File{Path: "licenses/" + licence.Path, Mode: 0o644, Data: licence.Text})
	}
	pack, extension := d.tarball, ".tar.gz"
	if platform.OS == "windows" {
		pack, extension = d.zipped, ".zip"
	}
	archive, err := pack(content)
	if err != nil {
		return nil, err
	}
	base := d.baseName(platform)
	files := []release.File{{Name: base + extension, Data: archive}, {Name: base + ".cdx.json", Data: bill}}
	if platform.OS == "linux" {
		data, err := d.debianPackage(platform, content)
		if err != nil {
			return nil, err
		}
		files = append(files, release.File{Name: base + ".deb", Data: data})
	}
	return files, nil
}

// baseName returns the common part of the names of a platform's files.
func (d *distribution) baseName(platform program.Platform) string {
	return fmt.Sprintf("%s_%s_%s_%s", name, d.version, platform.OS, platform.Architecture)
}

func (d *distribution) programName(platform program.Platform) string {
	if platform.OS == "windows" {
		return name + ".exe"
	}
	return name
}

// tarball returns files as a compressed tar archive.
func (d *distribution) tarball(files []program.File) ([]byte, error) {
	var data bytes.Buffer
	compressed := gzip.NewWriter(&data)
	if err := program.WriteTar(compressed, files, d.modified); err != nil {
		return nil, err
	}
	err := compressed.Close()
	return data.Bytes(), err
}

// zipped returns files as a zip archive.
func (d *distribution) zipped(files []program.File) ([]byte, error) {
	var data bytes.Buffer
	archive := zip.NewWriter(&data)
	for _, f := range program.WithFolders(files) {
		header := &zip.FileHeader{Name: f.Path, Method: zip.Deflate, Modified: d.modified}
		w, err := archive.CreateHeader(header)
		if err == nil {
			_, err = w.Write(f.Data)
		}
		if err != nil {
			return nil, fmt.Errorf("writing %s to an archive: %w", f.Path, err)
		}
	}
	err := archive.Close()
	return data.Bytes(), err
}

// debianPackage returns the package of the files of an archive.
// Source: deb(5) and the Debian Policy Manual, chapter 5.
func (d *distribution) debianPackage(platform program.Platform, content []program.File) ([]byte, error) {
	var files []program.File
	size := 0
	for _, f := range content {
		folder, file := path.Split(f.Path)
		switch {
		case f.Path == name:
			f.Path = "usr/bin/" + name
		case folder == "man/":
			f.Path = "usr/share/man/man1/" + file
		case strings.HasSuffix(file, ".bash"):
			f.Path = "usr/share/bash-completion/completions/" + name
		case strings.HasSuffix(file, ".fish"):
			f.Path = "usr/share/fish/vendor_completions.d/" + file
		case strings.HasPrefix(f.Path, "completions/_"):
			f.Path = "usr/share/zsh/vendor-completions/" + file
		case folder == "completions/":
			continue // for PowerShell
		default:
			f.Path = "usr/share/doc/" + name + "/" + f.Path
		}
		size += len(f.Data)
		files = append(files, f)
	}
	control := fmt.Sprintf(`Package: %s
Version: %s
Architecture: %s
Maintainer: The clusterctl-release authors <noreply@clusterctl-release.invalid>
Installed-Size: %d
Recommends: ca-certificates, git
Section: admin
Priority: optional
Homepage: https://%s
Description: build, check and publish releases of Cluster API providers
 The plugin "clusterctl release" takes a Cluster API provider from its source
 tree to a place where clusterctl installs it.
`, name, debianVersion(d.version), platform.Architecture, (size+1023)/1024, program.Module)
	meta, err := d.tarball([]program.File{{Path: "control", Mode: 0o644, Data: []byte(control)}})
	if err != nil {
		return nil, err
	}
	data, err := d.tarball(files)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	archive.WriteString("!<arch>\n")
	for _, member := range []release.File{{Name: "debian-binary", Data: []byte("2.0\n")}, {Name: "control.tar.gz", Data: meta}, {Name: "data.tar.gz", Data: data}} {
		fmt.Fprintf(&archive, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", member.Name, d.modified.Unix(), 0, 0, 0o100644, len(member.Data))
		archive.Write(member.Data)
		if len(member.Data)%2 == 1 {
			archive.WriteByte('\n')
		}
	}
	return archive.Bytes(), nil
}

// debianVersion returns a version as dpkg orders it: a pre-release is before its release.
func debianVersion(version string) string {
	return strings.Replace(strings.TrimPrefix(version, "v"), "-", "~", 1)
}
