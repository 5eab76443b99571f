package guest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
)

var (
	versionField = regexp.MustCompile(`(?m)^Version: (\S+)$`)
	kernelField  = regexp.MustCompile(`(?m)^Depends: .*?(linux-image-\S+-cloud-amd64) \(= (\S+)\)`)
)

// newestKernel returns the newest package of the kernel, as name=version.
func newestKernel(ctx context.Context) (string, error) {
	const name = "linux-image-cloud-amd64"
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("it comes from Debian's packages, and there is no apt-get: %w", err)
	}
	shown, err := show(ctx, name)
	if err != nil {
		// A new machine has no list of packages.
		if err := run(exec.CommandContext(ctx, "apt-get", "update", "-qq")); err != nil {
			return "", err
		}
		if shown, err = show(ctx, name); err != nil {
			return "", err
		}
	}
	match := kernelField.FindStringSubmatch(shown)
	if match == nil {
		return "", errors.New("the package " + name + " names no kernel")
	}
	return match[1] + "=" + match[2], nil
}

// newest returns the newest packages with some names, each as name=version.
func newest(ctx context.Context, names ...string) (packages []string, err error) {
	for _, name := range names {
		shown, err := show(ctx, name)
		if err != nil {
			return nil, err
		}
		version := versionField.FindStringSubmatch(shown)
		if version == nil {
			return nil, fmt.Errorf("the package %s has no version", name)
		}
		packages = append(packages, name+"="+version[1])
	}
	return packages, nil
}

func show(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", name).Output()
	if err != nil || len(out) == 0 {
		return "", fmt.Errorf("apt-cache knows no package %s: %w", name, err)
	}
	return string(out), nil
}
