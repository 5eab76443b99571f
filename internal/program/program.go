// Package program compiles the project's programs so that the same sources result in the same bytes in every folder and
// on every machine with the same version of Go, and collects the licences of their parts.
package program

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the path of the project's module.
const Module = "github.com/clusterctl-release/clusterctl-release"

// Program is a program of the project.
type Program struct {
	// Package is the folder of its main package, relative to the project's root, e.g. "./provider".
	Package string
	// Stamps are the variables that the linker sets, by their full names.
	Stamps map[string]string
}

// Manager returns the provider's manager in a version. It does not contain the commit, so the same tree results in the
// same bytes.
func Manager(version string) Program {
	return Program{Package: "./provider", Stamps: map[string]string{Module + "/provider/version.gitVersion": version}}
}

// Tool returns clusterctl-release in a version.
func Tool(version string) Program {
	return Program{Package: "./cmd/clusterctl-release", Stamps: map[string]string{"main.version": version}}
}

// Platform is an operating system and an architecture, as Go names them.
type Platform struct{ OS, Architecture string }

// ParsePlatform reads OS/ARCHITECTURE.
func ParsePlatform(text string) (Platform, error) {
	system, architecture, ok := strings.Cut(text, "/")
	if !ok || system == "" || architecture == "" || strings.Contains(architecture, "/") {
		return Platform{}, fmt.Errorf("platform %q: write OS/ARCHITECTURE, e.g. linux/arm64", text)
	}
	return Platform{OS: system, Architecture: architecture}, nil
}

// String returns OS/ARCHITECTURE.
func (p Platform) String() string { return p.OS + "/" + p.Architecture }

// environment returns the environment of the go command for the platform. It overrides user settings that change the
// bytes of a program.
func (p Platform) environment() []string {
	return append(os.Environ(), "GOOS="+p.OS, "GOARCH="+p.Architecture, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
}

// Compile writes the program for a platform to a file, without symbols and linked statically. root is the project's
// root folder.
func (p Program) Compile(ctx context.Context, root string, platform Platform, file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("compiling %s: %w", p.Package, err)
	}
	flags := []string{"-s", "-w"}
	for name, value := range p.Stamps {
		flags = append(flags, "-X="+name+"="+value)
	}
	slices.Sort(flags)
	_, err = run(ctx, root, platform, "build", "-trimpath", "-buildvcs=false", "-ldflags", strings.Join(flags, " "), "-o", file, p.Package)
	return err
}

// run runs the go command for a platform and returns its output.
func run(ctx context.Context, root string, platform Platform, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the project's own packages
	command.Dir, command.Env, command.Stderr = root, platform.environment(), &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s for %s: %w\n%s", strings.Join(args, " "), platform, err, stderr.Bytes())
	}
	return out, nil
}
