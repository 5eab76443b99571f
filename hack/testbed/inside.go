package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

// insideFolder returns the folder of the running testbed in its sandbox, as a path from outside.
func insideFolder(dir string) (string, error) {
	process, err := running(dir)
	if err != nil {
		return "", err
	}
	if process == 0 {
		return "", errors.New("no testbed runs: start one with make testbed-up")
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", process))
	if err != nil {
		return "", err
	}
	outside, _ := os.Stat(sandbox.Dir) // it exists if this process is itself in a sandbox
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for child := range strings.FieldsSeq(string(children)) {
			folder := filepath.Join("/proc", child, "root", sandbox.Dir)
			if inside, err := os.Stat(folder); err == nil && !os.SameFile(inside, outside) {
				return folder, nil
			}
		}
	}
	return "", fmt.Errorf("the testbed has no sandbox so far: %s says what it does", filepath.Join(dir, logFile))
}

// upComponent is the background process of the testbed.
const upComponent = "up"

// shortNames map paths of logs in the testbed's folder to the names of components.
var shortNames = []struct {
	path *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`^(second/)?management/`), "$1"},
	{regexp.MustCompile(`^(second/)?pods/logs/([^_]+)_([^_]+)_([^_]+)$`), "${1}pods/$2/$3/$4"},
	{regexp.MustCompile(`^hosts/([^/]+)/log/qemu/`), "hosts/$1/"},
}

// components are the paths of the logs in a testbed's folder, by the names of the components that write them.
func components(folder string) (map[string]string, error) {
	paths := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just ended
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".log" {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		name := strings.TrimSuffix(relative, ".log")
		for _, short := range shortNames {
			name = short.path.ReplaceAllString(name, short.name)
		}
		paths[name] = relative
		return err
	})
	return paths, err
}

// logs lists the components with logs, or replaces the process with a program that shows the log of the component with
// a name, or of all whose names contain the argument.
func logs(out io.Writer, args []string, follow bool) error {
	dir, err := folder()
	if err != nil {
		return err
	}
	all := map[string]string{}
	if _, err := os.Stat(filepath.Join(dir, logFile)); err == nil {
		all[upComponent] = filepath.Join(dir, logFile)
	}
	inside, err := insideFolder(dir)
	if err == nil {
		var more map[string]string
		more, err = components(inside)
		maps.Copy(all, more)
	}
	if len(args) == 0 {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintln(out, name)
		}
		return err
	}
	files, matchErr := match(all, args[0])
	if matchErr != nil {
		return errors.Join(matchErr, err)
	}
	if err == nil {
		if err := os.Chdir(inside); err != nil {
			return err
		}
	}
	command := []string{"tail", "--lines=+1"}
	if follow {
		command = append(command, "--follow")
	}
	return become(append(append(command, "--"), files...))
}

// match returns the files of the component with a name, or else of those whose names contain it.
func match(all map[string]string, name string) ([]string, error) {
	if file, known := all[name]; known {
		return []string{file}, nil
	}
	var files []string
	for _, each := range slices.Sorted(maps.Keys(all)) {
		if strings.Contains(each, name) {
			files = append(files, all[each])
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no component with a log has %q in its name: testbed logs lists them", name)
	}
	return files, nil
}

// virsh replaces the process with virsh, connected to a host through the socket of its libvirtd.
func virsh(args []string) error {
	dir, err := folder()
	if err != nil {
		return err
	}
	inside, err := insideFolder(dir)
	if err != nil {
		return err
	}
	const socket = "run/libvirt-sock"
	sockets, err := filepath.Glob(filepath.Join(inside, "hosts", "*", socket))
	if err != nil {
		return err
	}
	var names []string
	for _, each := range sockets {
		names = append(names, filepath.Base(strings.TrimSuffix(each, "/"+socket)))
	}
	if len(args) == 0 || !slices.Contains(names, args[0]) {
		return fmt.Errorf("usage: testbed virsh HOST [ARGS...], with one of the hosts %s", strings.Join(names, ", "))
	}
	uri := "qemu+unix:///system?socket=" + filepath.Join(inside, "hosts", args[0], socket)
	if _, err := exec.LookPath("virsh"); err != nil {
		return fmt.Errorf("%w: install Debian's package libvirt-clients (make testbed does so), or connect another client to %s", err, uri)
	}
	return become(append([]string{"virsh", "--connect", uri}, args[1:]...))
}

// become replaces this process with a program, whose exit status it then has.
func become(command []string) error {
	program, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return syscall.Exec(program, command, os.Environ())
}
