package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// shell is the shell, which only images for load balancers have.
const shell = "/bin/busybox"

// unitFolder is the folder for the services in user-data.
const unitFolder = "/etc/systemd/system"

// userData is the supported part of cloud-init's user-data
// (https://docs.cloud-init.io/en/latest/reference/modules.html, "Write Files" and "Runcmd").
type userData struct {
	WriteFiles []struct {
		Path        string `yaml:"path"`
		Permissions string `yaml:"permissions"`
		Content     string `yaml:"content"`
	} `yaml:"write_files"`
	RunCmd [][]string `yaml:"runcmd"`
}

// serve runs the guest's service. An image with a shell runs its user-data, as cloud-init and systemd would. Other
// images run an API server.
func serve(given seed) error {
	if _, err := os.Stat(shell); errors.Is(err, fs.ErrNotExist) {
		return playAPIServer(given.report.MetaData.InstanceID)
	}
	parsed, err := parseUserData(given.userData)
	if err != nil {
		return err
	}
	if err := os.Setenv("PATH", "/usr/local/sbin:/usr/sbin:/bin"); err != nil {
		return err
	}
	if out, err := exec.Command(shell, "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return fmt.Errorf("installing the shell: %w: %s", err, out)
	}
	// udev would create these.
	label := "/dev/disk/by-label/cidata"
	if err := os.MkdirAll(filepath.Dir(label), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(given.disk, label); err != nil {
		return err
	}
	if err := parsed.write("/"); err != nil {
		return err
	}
	for _, command := range parsed.RunCmd {
		if err := runCommand(command); err != nil {
			return err
		}
	}
	return nil
}

func parseUserData(content []byte) (userData, error) {
	var parsed userData
	if !bytes.HasPrefix(content, []byte("#cloud-config\n")) {
		return parsed, errors.New("the user-data isn't for cloud-init")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&parsed); err != nil {
		return parsed, fmt.Errorf("reading the user-data: %w", err)
	}
	return parsed, nil
}

// write writes the files below a folder.
func (u userData) write(root string) error {
	for _, file := range u.WriteFiles {
		permissions, err := strconv.ParseUint(file.Permissions, 8, 9)
		if err != nil {
			return fmt.Errorf("the permissions of %s: %w", file.Path, err)
		}
		path := filepath.Join(root, file.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(file.Content), os.FileMode(permissions)); err != nil {
			return err
		}
	}
	return nil
}

// runCommand replaces systemd. HAProxy, which is enabled, starts with its first configuration.
func runCommand(command []string) error {
	switch line := strings.Join(command, " "); line {
	case "systemctl daemon-reload", "systemctl enable haproxy.service":
		return nil
	default:
		unit, ok := strings.CutPrefix(line, "systemctl enable --now ")
		if !ok {
			return fmt.Errorf("the user-data runs %q, which isn't supported", line)
		}
		return startService(filepath.Join(unitFolder, unit))
	}
}

var (
	startLine   = regexp.MustCompile(`(?m)^ExecStart=(.+)$`)
	restartLine = regexp.MustCompile(`(?m)^Restart=always$`)
)

// startService starts the command of a unit, and restarts it whenever it ends.
func startService(unit string) error {
	content, err := os.ReadFile(unit)
	if err != nil {
		return err
	}
	start := startLine.FindSubmatch(content)
	if start == nil || !restartLine.Match(content) {
		return fmt.Errorf("%s must have ExecStart and Restart=always", unit)
	}
	arguments := strings.Fields(string(start[1]))
	go func() {
		for {
			service := exec.Command(arguments[0], arguments[1:]...)
			service.Stdout, service.Stderr = os.Stdout, os.Stderr
			fmt.Println("testbed guest:", arguments, "has ended:", service.Run())
			time.Sleep(retry)
		}
	}()
	return nil
}
