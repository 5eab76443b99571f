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

// addition is what an image has besides the kernel and the program.
type addition struct {
	// name that the image's begins with, and size of its disk in bytes.
	name string
	size int64
	// packages of Debian whose files of fromPackages come along.
	packages     []string
	fromPackages []string
	// files are those of this machine that come along, and content is what is there too, both by their paths in
	// the guest, which begin with no slash.
	files   map[string]string
	content map[string][]byte
	// folders are empty ones.
	folders []string
}

// sum is another one when anything is added that wasn't, or has another content.
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

// write writes what is added. The packages are in a tree. All of it can be executed.
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

// BalancerImage is like Image, with what an image for load balancers has: the HAProxy of this machine, a shell
// (Debian's busybox-static), and a systemctl that knows HAProxy only.
func BalancerImage(ctx context.Context, project, cache string) (string, error) {
	files, err := withLibraries(ctx, "usr/sbin/haproxy")
	if err != nil {
		return "", fmt.Errorf("looking for HAProxy, which hack/tools/libvirt installs: %w", err)
	}
	return image(ctx, project, cache, systemdBoot, addition{
		name: "balancer", size: 96 << 20, files: files,
		packages: []string{"busybox-static"}, fromPackages: []string{"bin/busybox"},
		content: map[string][]byte{"bin/systemctl": systemctl},
		folders: []string{"etc/haproxy", "tmp", "run"},
	})
}

// libraryLine is what ldd says of a library that was found.
var libraryLine = regexp.MustCompile(`(?m)^\s+(?:\S+ => )?/(\S+) \(0x`)

// withLibraries are a program of this machine and what it is linked with, by their paths without the slash.
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
