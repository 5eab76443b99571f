package guest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// addition has the parts of an image in addition to the kernel and the program.
type addition struct {
	// name is the prefix of the image's name, and size the size of its disk in bytes.
	name string
	size int64
	// packages of Debian, of which fromPackages are the added files.
	packages     []string
	fromPackages []string
	// files are added files of this machine, and content are files with a given content, both by their paths in the
	// guest without the first slash.
	files   map[string]string
	content map[string][]byte
	// folders are empty folders.
	folders []string
}

// sum returns a hash of the additions and their content.
func (a addition) sum() (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, a.size, a.packages, a.fromPackages, a.folders)
	for _, name := range slices.Sorted(maps.Keys(a.files)) {
		content, err := os.ReadFile(a.files[name])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
	}
	for _, name := range slices.Sorted(maps.Keys(a.content)) {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(a.content[name]), a.content[name])
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// write writes the additions to an archive. tree has the content of the packages. All files are executable.
func (a addition) write(archive *cpio, tree string) error {
	files := maps.Clone(a.files)
	for _, name := range a.fromPackages {
		if files == nil {
			files = map[string]string{}
		}
		files[name] = filepath.Join(tree, name)
	}
	folders := map[string]bool{}
	add := func(name string) {
		for ; name != "."; name = path.Dir(name) {
			folders[name] = true
		}
	}
	for name := range files {
		add(path.Dir(name))
	}
	for name := range a.content {
		add(path.Dir(name))
	}
	for _, name := range a.folders {
		add(name)
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) { // parents come first
		archive.folder(name)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := archive.file(name, files[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.content)) {
		archive.bytes(name, a.content[name], 0o755)
	}
	return nil
}

//go:embed systemctl.sh
var systemctl []byte

// BalancerImage is Image for load balancers: it adds the HAProxy of this machine, a shell (Debian's busybox-static),
// and a systemctl that supports HAProxy only.
func BalancerImage(ctx context.Context, project, cache string) (string, error) {
	files, err := withLibraries(ctx, "usr/sbin/haproxy")
	if err != nil {
		return "", fmt.Errorf("finding HAProxy, which hack/tools/libvirt installs: %w", err)
	}
	return image(ctx, project, cache, systemdBoot, addition{
		name: "balancer", size: 96 << 20, files: files,
		packages: []string{"busybox-static"}, fromPackages: []string{"bin/busybox"},
		content: map[string][]byte{"bin/systemctl": systemctl},
		folders: []string{"etc/haproxy", "tmp", "run"},
	})
}

// libraryLine matches a library in the output of ldd.
var libraryLine = regexp.MustCompile(`(?m)^\s+(?:\S+ => )?/(\S+) \(0x`)

// withLibraries returns a program of this machine and its shared libraries, by their paths without the first slash.
func withLibraries(ctx context.Context, program string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", "/"+program).CombinedOutput()
	if err != nil || strings.Contains(string(out), "not found") {
		return nil, fmt.Errorf("ldd /%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	files := map[string]string{program: "/" + program}
	for _, match := range libraryLine.FindAllStringSubmatch(string(out), -1) {
		files[match[1]] = "/" + match[1]
	}
	if len(files) == 1 {
		return nil, fmt.Errorf("ldd /%s names no library: %s", program, out)
	}
	return files, nil
}
