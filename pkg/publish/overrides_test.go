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

// publishOverrides publishes to the overrides folder, again, and with other bytes. It prints the folder
// and the command that uses it. It runs in its own process, because a process reads clusterctl's
// configuration and the XDG folders only once.
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
		return fmt.Errorf("fetching a missing version: %w", err)
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
		// files exist before, by their paths in the home folder. HOME in their text is the home folder.
		files map[string]string
		env   string
		// config is the path of the configuration in the home folder; empty for none.
		config string
		// want is the overrides folder, relative to the home folder.
		want string
		// wantErr is part of the error; empty for none.
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
					t.Errorf("got %v, want %q: %s", err, test.wantErr, out)
				}
				return
			}
			want := filepath.Join(home, test.want)
			if err != nil || string(out) != want+"\n"+use+"\n" {
				t.Fatalf("got %v, want %s: %s", err, want, out)
			}
			mustRead(t, want, someRelease(libvirt, "v0.1.0", ""))
			found := tree(t, want)
			if left := leftovers(found); len(left) > 0 || found[configFile] != "" {
				t.Errorf("got more files than those of the release: %v", found)
			}
		})
	}
}

// TestReadBackIgnoresOverrides checks that files in a user's overrides folder are not read instead of the published
// ones.
func TestReadBackIgnoresOverrides(t *testing.T) {
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

// TestPublishWithoutConfigurationFolder checks that nothing is published if clusterctl's client has no folder for its
// configuration.
func TestPublishWithoutConfigurationFolder(t *testing.T) {
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
