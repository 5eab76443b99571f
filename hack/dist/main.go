// Command dist creates the files of clusterctl-release that users download: an archive for each platform with the
// program, shell completions, manual pages and licences; a Debian package for each architecture of Linux; software
// bills of materials, checksums, a manifest for krew, and a statement of provenance, signed if there is a key. The same
// commit results in the same files, except for signatures.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/program"
	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const name = "clusterctl-release"

// distribution contains the parameters.
type distribution struct {
	// root is the project's root folder.
	root string
	// version of the program, and the checked-out commit, with "-dirty" for uncommitted changes.
	version, commit string
	// modified is the time of all files.
	modified  time.Time
	platforms []program.Platform
	// keyFile contains the private key for signing, and may be empty.
	keyFile string
	// compiled contains the programs by platform, because compiling takes most of the time. They are in the folder
	// work.
	compiled map[program.Platform]string
	work     string
}

// compile returns the program's file for a platform.
func (d *distribution) compile(ctx context.Context, platform program.Platform) (string, error) {
	if file, done := d.compiled[platform]; done {
		return file, nil
	}
	fmt.Fprintf(os.Stderr, "compiling the tool for %s\n", platform)
	file := filepath.Join(d.work, platform.OS+"-"+platform.Architecture)
	if err := program.Tool(d.version).Compile(ctx, d.root, platform, file); err != nil {
		return "", err
	}
	d.compiled[platform] = file
	return file, nil
}

func main() {
	var d distribution
	flag.StringVar(&d.version, "version", "", "version of the program, e.g. v0.1.0")
	flag.StringVar(&d.commit, "commit", "", "checked-out commit")
	flag.StringVar(&d.keyFile, "sign-key", "", "file with the private key to sign the provenance with")
	epoch := flag.Int64("epoch", 0, "time of the commit, in seconds since 1970")
	platforms := flag.String("platforms", "linux/amd64", "platforms to build for")
	flag.Parse()
	if d.version == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: dist -version VERSION FOLDER")
		os.Exit(2)
	}
	d.root, d.modified = ".", time.Unix(*epoch, 0).UTC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := d.make(ctx, strings.Split(*platforms, ","), flag.Arg(0))
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "dist: %v\n", err)
		os.Exit(1)
	}
}

// make writes all files to a folder, which it replaces.
func (d *distribution) make(ctx context.Context, platforms []string, folder string) error {
	for _, text := range platforms {
		platform, err := program.ParsePlatform(text)
		if err != nil {
			return err
		}
		d.platforms = append(d.platforms, platform)
	}
	if err := d.requireSource(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "dist-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // a temporary folder
	d.work, d.compiled = work, map[program.Platform]string{}
	files, err := d.files(ctx)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(folder, f.Name), f.Data, 0o644); err != nil {
			return err
		}
		fmt.Printf("  %-50s %9d bytes\n", f.Name, len(f.Data))
	}
	return nil
}

// hasSource reports whether the files come from a commit without changes.
func (d *distribution) hasSource() bool {
	return d.commit != "" && !strings.HasSuffix(d.commit, "-dirty")
}

// requireSource fails if a signature is requested and the source is not a commit.
func (d *distribution) requireSource() error {
	if d.keyFile == "" {
		return nil
	}
	if !d.hasSource() {
		return fmt.Errorf("nothing is signed: the tree is not as in a commit (%q): commit its changes first", d.commit)
	}
	return provenance.CheckKey(d.keyFile)
}

// files returns all files that users download.
func (d *distribution) files(ctx context.Context) ([]release.File, error) {
	shared, err := d.sharedFiles(ctx)
	if err != nil {
		return nil, err
	}
	var files []release.File
	archives := map[program.Platform]release.File{}
	for _, platform := range d.platforms {
		packed, err := d.filesFor(ctx, platform, shared)
		if err != nil {
			return nil, fmt.Errorf("packing for %s: %w", platform, err)
		}
		archives[platform] = packed[0]
		files = append(files, packed...)
	}
	manifest, err := d.krewManifest(archives)
	if err != nil {
		return nil, err
	}
	files = append(files, release.File{Name: "krew.yaml", Data: manifest})
	var sums strings.Builder
	for _, f := range files {
		fmt.Fprintf(&sums, "%s  %s\n", release.Digest(f.Data), f.Name)
	}
	files = append(files, release.File{Name: "SHA256SUMS", Data: []byte(sums.String())})
	if !d.hasSource() {
		return files, nil
	}
	source := &release.Source{Repository: "https://" + program.Module, Commit: d.commit}
	statement, err := provenance.New(ctx, d.version, files, source, d.keyFile)
	return append(files, statement), err
}

// sharedFiles returns the completions and manual pages, which the program prints.
func (d *distribution) sharedFiles(ctx context.Context) ([]program.File, error) {
	tool, err := d.compile(ctx, program.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	run := func(args ...string) ([]byte, error) {
		command := exec.CommandContext(ctx, tool, args...)
		command.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(d.modified.Unix(), 10))
		command.Stderr = os.Stderr
		return command.Output()
	}
	var files []program.File
	for shell, file := range map[string]string{
		"bash": "completions/" + name + ".bash", "zsh": "completions/_" + name, "fish": "completions/" + name + ".fish",
		"powershell": "completions/" + name + ".ps1",
	} {
		text, err := run("completion", shell)
		if err != nil {
			return nil, fmt.Errorf("making the completion for %s: %w", shell, err)
		}
		files = append(files, program.File{Path: file, Mode: 0o644, Data: text})
	}
	pages := filepath.Join(d.work, "man")
	if _, err := run("man", pages); err != nil {
		return nil, fmt.Errorf("making the manual pages: %w", err)
	}
	entries, err := os.ReadDir(pages)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(pages, entry.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, program.File{Path: path.Join("man", entry.Name()), Mode: 0o644, Data: text})
	}
	return files, nil
}
