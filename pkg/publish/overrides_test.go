package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// publishOverrides publishes to the overrides folder, again, and with other bytes; it prints where
// to and the command to use it. It runs in a process of its own, as clusterctl's configuration and
// the XDG folders are read once in a process.
func publishOverrides(ctx context.Context, config string, _ disk) error {
	p, err := Open("overrides", Options{ClusterctlConfig: config})
	if err != nil {
		return err
	}
	r := someRelease(libvirt, "v0.1.0", "")
	plan, err := p.Plan(ctx, []*release.Release{r})
	if err != nil {
		return err
	}
	result, err := p.Publish(ctx, []*release.Release{r})
	if err != nil || plan.String() != result.Plan.String() {
		return fmt.Errorf("planned %v, did %v: %w", plan, result, err)
	}
	fmt.Println(result.Target)
	fmt.Println(result.Commands[1])
	again, err := p.Publish(ctx, []*release.Release{r})
	if err != nil || again.Changes() || again.Config != nil {
		return fmt.Errorf("publishing again: %v: %w", again, err)
	}
	var conflict *ConflictError
	if _, err := p.Publish(ctx, []*release.Release{someRelease(libvirt, "v0.1.0", "other")}); !errors.As(err, &conflict) {
		return fmt.Errorf("publishing other bytes: %w", err)
	}
	if _, err := p.Fetch(ctx, libvirt, "latest"); err == nil || !strings.Contains(err.Error(), "of one version") {
		return fmt.Errorf("fetching the latest: %w", err)
	}
	if _, err := p.Fetch(ctx, libvirt, "v0.2.0"); !errors.Is(err, release.ErrNoRelease) {
		return fmt.Errorf("fetching what is not there: %w", err)
	}
	got, err := p.Fetch(ctx, libvirt, "v0.1.0")
	if err == nil && len(r.Differences(got)) > 0 {
		return errors.New("other bytes were fetched")
	}
	if err != nil {
		return err
	}
	if v, err := Verify(ctx, "overrides", "", Options{ClusterctlConfig: config}); err != nil || len(v.Releases) != 1 || len(v.Problems) > 0 {
		return fmt.Errorf("verifying: %+v: %w", v, err)
	}
	return nil
}

func TestPublishOverrides(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// files are there before, by their paths in the home; HOME in their text is the home.
		files map[string]string
		env   string
		// config is the configuration that is asked for.
		config string
		// want is where the overrides are to go, in the home.
		want string
		// wantErr is part of the error; empty is none.
		wantErr string
	}{
		{name: "XDG folder", want: ".config/cluster-api/overrides"},
		{name: "XDG variable", env: "XDG_CONFIG_HOME=HOME/xdg", want: "xdg/cluster-api/overrides"},
		{name: "folder in the home", files: map[string]string{".cluster-api/overrides/file": ""}, want: ".cluster-api/overrides"},
		{
			name:  "both folders",
			files: map[string]string{".cluster-api/overrides/file": "", ".config/cluster-api/overrides/file": ""},
			want:  ".config/cluster-api/overrides",
		},
		{name: "variable", env: "OVERRIDESFOLDER=${HOME}/by variable", want: "by variable"},
		{
			name:  "default configuration",
			files: map[string]string{".config/cluster-api/clusterctl.yaml": "overridesFolder: ${HOME}/by default\n"},
			want:  "by default",
		},
		{
			name:   "configuration",
			files:  map[string]string{"own.yaml": "overridesFolder: HOME/by own\n", ".config/cluster-api/clusterctl.yaml": "overridesFolder: /nowhere\n"},
			config: "own.yaml", want: "by own",
		},
		{name: "relative", env: "OVERRIDESFOLDER=relative", wantErr: "make it absolute"},
		{name: "bad variable", env: "OVERRIDESFOLDER=/${", wantErr: "replacing its variables"},
		{name: "broken configuration", files: map[string]string{"own.yaml": "a: ["}, config: "own.yaml", wantErr: "reading clusterctl's configuration"},
		{name: "missing configuration", config: "own.yaml", wantErr: "own.yaml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			for name, text := range test.files {
				write(t, filepath.Join(home, name), strings.ReplaceAll(text, "HOME/", home+"/"))
			}
			config, use := "", "clusterctl init --infrastructure libvirt:v0.1.0"
			if test.config != "" {
				config = filepath.Join(home, test.config)
				use = "clusterctl --config " + config + " init --infrastructure libvirt:v0.1.0"
			}
			env := strings.Replace(test.env, "=HOME/", "="+home+"/", 1)
			out, err := command(t, "overrides", config, "", "HOME="+home, "XDG_CONFIG_HOME=", env).CombinedOutput()
			if test.wantErr != "" {
				if err == nil || !strings.Contains(string(out), test.wantErr) {
					t.Errorf("want %q, got %v: %s", test.wantErr, err, out)
				}
				return
			}
			want := filepath.Join(home, test.want)
			if err != nil || string(out) != want+"\n"+use+"\n" {
				t.Fatalf("want %s, got %v: %s", want, err, out)
			}
			mustRead(t, want, someRelease(libvirt, "v0.1.0", ""))
			found := tree(t, want)
			if left := hidden(found); len(left) > 0 || found[configFile] != "" {
				t.Errorf("more than the release: %v", found)
			}
		})
	}
}

// TestReadBackPassesOverrides: files in a user's overrides folder are not mistaken for those published to a repository.
func TestReadBackPassesOverrides(t *testing.T) {
	t.Parallel()
	home, root := t.TempDir(), t.TempDir()
	write(t, filepath.Join(home, ".config", "cluster-api", "overrides", "infrastructure-libvirt", "v0.1.0", "infrastructure-components.yaml"), "mine")
	if out, err := command(t, "same", root, "", "HOME="+home, "XDG_CONFIG_HOME=").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(root, configFile)); err != nil {
		t.Error(err)
	}
}

// TestPublishWithoutFolderForConfigurations: a user whose clusterctl client can't work learns it before the release is
// published.
func TestPublishWithoutFolderForConfigurations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, root := filepath.Join(dir, "file"), filepath.Join(dir, "repo")
	write(t, file, "")
	for _, task := range []string{"same", "overrides"} {
		to := map[string]string{"same": root}[task]
		out, err := command(t, task, to, "", "HOME="+file, "XDG_CONFIG_HOME="+file+"/x", "XDG_CONFIG_DIRS="+file+"/y").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "set HOME or XDG_CONFIG_HOME") {
			t.Errorf("%s: %v: %s", task, err, out)
		}
	}
	if _, err := os.Lstat(root); err == nil {
		t.Error("something was written")
	}
}
